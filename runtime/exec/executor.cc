#include "runtime/exec/executor.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/time.h"
#include "runtime/exec/host_copy.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/prediction.h"

namespace lockstep::exec {
namespace {

// Runs an op and adds its name to errors. On a device that works from a queue, the error may come
// from an earlier op.
void run_named(const Implementation& implementation,
               const graph::Op& op,
               const graph::OpCall& call) {
  try {
    implementation.run(call);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{} '{}': {}", graph::name_of(op.kind), op.name, error.what()));
  }
}

}  // namespace

Executor::Executor(const graph::Graph& graph,
                   const plan::ProgramPlan& plan,
                   const plan::ParameterLayout& layout,
                   Backend& backend,
                   ExecutorMemory memory,
                   int interleaved_lanes)
    : graph_(graph),
      plan_(plan),
      backend_(backend),
      gather_(memory.gather),
      parameters_(memory.parameters),
      arena_(memory.arena),
      tensors_(static_cast<size_t>(interleaved_lanes), Tensors(graph.tensors.size(), nullptr)),
      rows_(graph::row_gradients(graph)) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    implementations_.push_back(
        &backend.ops().choose(graph, graph.ops[i], backend.launch_context()));
    if (graph.ops[i].kind == graph::OpKind::kGatherLanes) gathers_.push_back(i);
  }
  for (size_t lane_index = 0; lane_index < tensors_.size(); ++lane_index) {
    for (size_t id = 0; id < graph.tensors.size(); ++id) {
      if (plan.tensor_offsets[id] != plan::kNotInArena)
        tensors_[lane_index][id] =
            memory.arena + lane_index * plan.arena_bytes + plan.tensor_offsets[id];
    }
  }
  LOCKSTEP_CHECK(plan.states.empty() || memory.states != nullptr);
  for (Tensors& tensors : tensors_)
    for (const plan::PlacedTensor& state : plan.states)
      tensors[static_cast<size_t>(state.tensor)] = memory.states + state.offset;
  fill_constants(memory.constants);
  LOCKSTEP_CHECK(graph.parameters.size() == layout.slots.size());
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const TensorId parameter = graph.parameters[i];
    LOCKSTEP_CHECK(graph[parameter].name == layout.slots[i].name &&
                   graph.shape(parameter) == layout.slots[i].shape);
    const size_t bytes = size_of(graph[parameter].dtype);
    for (Tensors& tensors : tensors_) {
      if (!plan.gathers_each_run)
        tensors[static_cast<size_t>(parameter)] =
            memory.parameters + static_cast<size_t>(layout.slots[i].offset) * bytes;
    }
    if (graph[parameter].gradient != kNoTensor)
      gradients_.push_back({graph[parameter].gradient, layout.slots[i].gradient_offset});
  }
}

void Executor::fill_constants(std::byte* memory) {
  LOCKSTEP_CHECK(plan_.constants.empty() || memory != nullptr);
  for (const plan::PlacedTensor& placed : plan_.constants) {
    const std::vector<std::byte>& bytes = *graph_[placed.tensor].constant;
    std::byte* const address = memory + placed.offset;
    HostCopyOf<std::byte> copy(backend_, address, static_cast<int64_t>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), copy.data());
    copy.write();
    for (Tensors& tensors : tensors_) tensors[static_cast<size_t>(placed.tensor)] = address;
  }
}

void Executor::bind(Tensors& tensors,
                    const std::byte* input,
                    const std::byte* target,
                    float* gradients) {
  // Inputs are only read. The table has mutable pointers because most tensors are written.
  tensors[static_cast<size_t>(graph_.inputs[graph::GraphIn::kInput])] =
      const_cast<std::byte*>(input);
  if (graph_.inputs.size() > 1)
    tensors[static_cast<size_t>(graph_.inputs[graph::GraphIn::kTarget])] =
        const_cast<std::byte*>(target);
  for (const auto& [tensor, offset] : gradients_)
    tensors[static_cast<size_t>(tensor)] = reinterpret_cast<std::byte*>(gradients + offset);
}

void Executor::begin_run() {
  if (plan_.gathers_each_run) gather_->start(plan_.gathers);
}

void Executor::await_parameters(size_t op, Tensors& tensors) {
  if (plan_.gathers.empty()) return;
  gather_->wait_for(plan_.gathered_before_op[op]);
  if (!plan_.gathers_each_run) return;
  for (const plan::PlacedParameter& placed : plan_.placed_before_op[op])
    tensors[static_cast<size_t>(graph_.parameters[placed.parameter])] = parameters_ + placed.offset;
}

// Runs an op and reports it to the observer, if there is one.
template <typename F>
void Executor::observed(size_t op, F run) const {
  if (observer_ == nullptr) return run();
  const double start_ms = now_ms();
  run();
  observer_->ran(op, start_ms, now_ms());
}

// Runs ops [begin, end) of the lane with this index among those that run together.
void Executor::run_range(size_t begin,
                         size_t end,
                         size_t lane_index,
                         const graph::LaneContext& lane,
                         collectives::GradientExchange* exchange) {
  void* const device = backend_.launch_context();
  std::byte* const arena = arena_ + lane_index * plan_.arena_bytes;
  FlightRecorder& recorder = FlightRecorder::here();
  for (size_t i = begin; i < end; ++i) {
    recorder.beat();
    if (gather_ != nullptr) await_parameters(i, tensors_[lane_index]);
    if (exchange != nullptr && !plan_.buckets_begun_by_op.empty()) {
      for (int bucket : plan_.buckets_begun_by_op[i]) exchange->bucket_begins(bucket);
    }
    observed(i, [&] {
      run_named(*implementations_[i],
                graph_.ops[i],
                graph::OpCall(graph_,
                              graph_.ops[i],
                              tensors_[lane_index].data(),
                              arena + plan_.workspace_offsets[i],
                              lane,
                              device));
    });
    if (observer_ != nullptr) observer_->wrote(graph_, i, lane, tensors_[lane_index]);
    if (exchange == nullptr) continue;
    for (int bucket : plan_.buckets_after_op[i]) exchange->bucket_ready(bucket);
    exchange->progress();
    if (gather_ != nullptr) gather_->progress();
  }
}

void Executor::run(const graph::LaneContext& lane,
                   const std::byte* input,
                   const std::byte* target,
                   float* gradients,
                   collectives::GradientExchange* exchange,
                   std::byte* result,
                   std::byte* prediction) {
  backend_.begin_lane(lane);
  run_ops(lane, input, target, gradients, exchange);
  copy_results(exchange, result, prediction);
}

void Executor::run_ops(const graph::LaneContext& lane,
                       const std::byte* input,
                       const std::byte* target,
                       float* gradients,
                       collectives::GradientExchange* exchange) {
  LOCKSTEP_CHECK(gathers_.empty());
  begin_run();
  bind(tensors_[0], input, target, gradients);
  run_range(0, graph_.ops.size(), 0, lane, exchange);
}

void Executor::copy_results(collectives::GradientExchange* exchange,
                            std::byte* result,
                            std::byte* prediction) {
  keep_rows(tensors_[0], exchange);
  const auto id = static_cast<size_t>(graph_.result);
  backend_.copy(tensors_[0][id], result, graph_.tensors[id].bytes());
  if (prediction == nullptr) return;
  const auto predicted = static_cast<size_t>(graph::prediction_of(graph_));
  backend_.copy(tensors_[0][predicted], prediction, graph_.tensors[predicted].bytes());
}

void Executor::run_without_lane(collectives::GradientExchange* exchange) {
  begin_run();
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    if (gather_ != nullptr) await_parameters(i, tensors_[0]);
    if (exchange == nullptr) continue;
    if (!plan_.buckets_begun_by_op.empty()) {
      for (int bucket : plan_.buckets_begun_by_op[i]) exchange->bucket_begins(bucket);
    }
    for (int bucket : plan_.buckets_after_op[i]) exchange->bucket_ready(bucket);
  }
}

void Executor::run_together(std::span<const LaneRun> lanes,
                            collectives::GradientExchange& exchange) {
  LOCKSTEP_CHECK(lanes.size() == tensors_.size() && (lanes.size() == 1 || !plan_.gathers_each_run));
  begin_run();
  const auto each_lane = [&](auto body) {
    for (size_t lane_index = 0; lane_index < lanes.size(); ++lane_index) {
      exchange.select_lane(static_cast<int>(lane_index));
      body(lane_index, lanes[lane_index]);
    }
  };
  each_lane([&](size_t lane_index, const LaneRun& lane) {
    bind(tensors_[lane_index], lane.input, lane.target, exchange.lane_gradients());
  });
  size_t begin = 0;
  for (size_t part = 0; part <= gathers_.size(); ++part) {
    const size_t end = part < gathers_.size() ? gathers_[part] : graph_.ops.size();
    each_lane([&](size_t lane_index, const LaneRun& lane) {
      backend_.begin_lane(*lane.lane);
      run_range(begin, end, lane_index, *lane.lane, &exchange);
    });
    if (part < gathers_.size()) observed(end, [&] { gather_lanes(graph_.ops[end], exchange); });
    begin = end + 1;
  }
  const auto id = static_cast<size_t>(graph_.result);
  each_lane([&](size_t lane_index, const LaneRun& lane) {
    keep_rows(tensors_[lane_index], &exchange);
    backend_.copy(tensors_[lane_index][id], lane.result, graph_.tensors[id].bytes());
  });
}

// Hands the row gradients to the exchange, which keeps them until all lanes are done; or adds them
// to the gradients.
void Executor::keep_rows(const Tensors& tensors, collectives::GradientExchange* exchange) {
  const auto at = [&](TensorId id) { return tensors[static_cast<size_t>(id)]; };
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto& [parameter, ids, rows] = rows_[i];
    if (exchange == nullptr) {
      const Shape& table = graph_.shape(parameter);
      backend_.add_rows({.ids = reinterpret_cast<const int32_t*>(at(ids)),
                         .rows = at(rows),
                         .dtype = graph_[rows].dtype,
                         .count = graph_.shape(ids).elements(),
                         .columns = table.columns()},
                        0,
                        table.elements(),
                        reinterpret_cast<float*>(at(graph_[parameter].gradient)));
      continue;
    }
    const collectives::GradientExchange::LaneRows place = exchange->lane_rows(i);
    backend_.copy(at(ids), place.ids, graph_[ids].bytes());
    backend_.copy(at(rows), place.rows, graph_[rows].bytes());
  }
}

// Collects every lane's input in the first lane's output, then copies it to the others.
void Executor::gather_lanes(const graph::Op& op, collectives::GradientExchange& exchange) {
  const auto in = static_cast<size_t>(op.inputs[graph::GatherLanesIn::kLane]);
  const auto out = static_cast<size_t>(op.outputs[graph::GatherLanesOut::kAll]);
  const size_t bytes = graph_.tensors[in].bytes();
  std::byte* const all = tensors_[0][out];
  const auto first = static_cast<size_t>(exchange.lanes().first);
  for (size_t lane_index = 0; lane_index < tensors_.size(); ++lane_index)
    backend_.copy(tensors_[lane_index][in], all + (first + lane_index) * bytes, bytes);
  exchange.gather_lanes(all, bytes);
  for (size_t lane_index = 1; lane_index < tensors_.size(); ++lane_index)
    backend_.copy(all, tensors_[lane_index][out], graph_.tensors[out].bytes());
}

}  // namespace lockstep::exec
