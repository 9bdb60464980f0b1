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
                   const graph::Graph* joint)
    : graph_(graph),
      plan_(plan),
      backend_(backend),
      gather_(memory.gather),
      parameters_(memory.parameters),
      arena_(memory.arena),
      tensors_(static_cast<size_t>(plan.lanes), Tensors(graph.tensors.size(), nullptr)),
      rows_(graph::row_gradients(graph)),
      joint_(joint) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    implementations_.push_back(
        &backend.ops().choose(graph, graph.ops[i], backend.launch_context()));
    gathers_from_lanes_ |= graph.ops[i].kind == graph::OpKind::kGatherLanes;
    joint_ops_.push_back(joint == nullptr ? nullptr : joint_op(i, plan.lanes));
  }
  for (size_t lane_index = 0; lane_index < tensors_.size(); ++lane_index) {
    for (size_t id = 0; id < graph.tensors.size(); ++id) {
      if (plan.tensor_offsets[id] != plan::kNotInArena)
        tensors_[lane_index][id] = memory.arena + plan.tensor_offsets[id] +
                                   lane_index * plan::ProgramPlan::lane_stride(graph.tensors[id]);
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
                              arena_ + plan_.workspace_offsets[i],
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
  LOCKSTEP_CHECK(!gathers_from_lanes_);
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
                            collectives::GradientExchange& exchange,
                            int first) {
  LOCKSTEP_CHECK(lanes.size() <= tensors_.size() && (lanes.size() == 1 || !plan_.gathers_each_run));
  begin_run();
  const auto each_lane = [&](auto body) {
    for (size_t lane_index = 0; lane_index < lanes.size(); ++lane_index) {
      exchange.select_lane(first + static_cast<int>(lane_index));
      body(lane_index, lanes[lane_index]);
    }
  };
  const bool selects = lanes.size() <= static_cast<size_t>(Backend::kLanesAtOnce);
  const auto begin_lane = [&](size_t lane_index) {
    backend_.begin_lane(*lanes[lane_index].lane, selects ? static_cast<int>(lane_index) : 0);
  };
  each_lane([&](size_t lane_index, const LaneRun& lane) {
    bind(tensors_[lane_index], lane.input, lane.target, exchange.lane_gradients());
    begin_lane(lane_index);
  });
  // Op by op: until all lanes have run an op, none may write to memory that it still reads.
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    if (graph_.ops[i].kind == graph::OpKind::kGatherLanes) {
      observed(i, [&] { gather_lanes(graph_.ops[i], exchange, lanes.size()); });
    } else if (runs_jointly(i, lanes.size())) {
      run_joint(i, lanes, exchange, first);
    } else {
      each_lane([&](size_t lane_index, const LaneRun& lane) {
        selects ? backend_.select_lane(static_cast<int>(lane_index)) : begin_lane(lane_index);
        run_range(i, i + 1, lane_index, *lane.lane, &exchange);
      });
    }
  }
  const auto id = static_cast<size_t>(graph_.result);
  each_lane([&](size_t lane_index, const LaneRun& lane) {
    keep_rows(tensors_[lane_index], &exchange);
    backend_.copy(tensors_[lane_index][id], lane.result, graph_.tensors[id].bytes());
  });
}

// The op of the joint graph that computes this op for all lanes with the bits of each lane; null if
// there is none.
const graph::Op* Executor::joint_op(size_t op, int lanes) const {
  if (!plan::runs_jointly(graph_, *joint_, op, lanes)) return nullptr;
  const graph::Op& joint = joint_->ops[op];
  const Implementation& chosen =
      backend_.ops().choose(*joint_, joint, backend_.launch_context(), lanes);
  return &chosen == implementations_[op] ? &joint : nullptr;
}

// Whether the op runs for all of these lanes at once: a whole pass, whose gradients lie at equal
// distances.
bool Executor::runs_jointly(size_t op, size_t lanes) const {
  if (joint_ops_[op] == nullptr || lanes != tensors_.size()) return false;
  for (const TensorId id : joint_ops_[op]->outputs) {
    for (size_t lane = 2; id != kNoTensor && lane < lanes; ++lane) {
      if (graph_[id].role == graph::Role::kParameterGradient &&
          lane_distance(id, lane) != lane_distance(id, 1))
        return false;
    }
  }
  return true;
}

// Bytes from the slice of the lane before to that of `lane`.
int64_t Executor::lane_distance(TensorId id, size_t lane) const {
  const auto at = static_cast<size_t>(id);
  return tensors_[lane][at] - tensors_[lane - 1][at];
}

void Executor::run_joint(size_t op,
                         std::span<const LaneRun> lanes,
                         collectives::GradientExchange& exchange,
                         int first) {
  FlightRecorder::here().beat();
  if (gather_ != nullptr) await_parameters(op, tensors_.front());
  const graph::Op& joint = *joint_ops_[op];
  int64_t gradient_bytes = 0;
  for (const TensorId id : joint.outputs) {
    if (id != kNoTensor && graph_[id].role == graph::Role::kParameterGradient)
      gradient_bytes = lane_distance(id, 1);
  }
  observed(op, [&] {
    run_named(*implementations_[op],
              joint,
              graph::OpCall(*joint_,
                            joint,
                            tensors_.front().data(),
                            arena_ + plan_.workspace_offsets[op],
                            *lanes.front().lane,
                            backend_.launch_context())
                  .of_lanes({static_cast<int>(lanes.size()), gradient_bytes}));
  });
  for (size_t lane_index = 0; lane_index < lanes.size(); ++lane_index) {
    exchange.select_lane(first + static_cast<int>(lane_index));
    if (observer_ != nullptr)
      observer_->wrote(graph_, op, *lanes[lane_index].lane, tensors_[lane_index]);
    for (int bucket : plan_.buckets_after_op[op]) exchange.bucket_ready(bucket);
  }
  exchange.progress();
  if (gather_ != nullptr) gather_->progress();
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
void Executor::gather_lanes(const graph::Op& op,
                            collectives::GradientExchange& exchange,
                            size_t lanes) {
  const auto in = static_cast<size_t>(op.inputs[graph::GatherLanesIn::kLane]);
  const auto out = static_cast<size_t>(op.outputs[graph::GatherLanesOut::kAll]);
  const size_t bytes = graph_.tensors[in].bytes();
  std::byte* const all = tensors_[0][out];
  const auto first = static_cast<size_t>(exchange.lanes().first);
  for (size_t lane_index = 0; lane_index < lanes; ++lane_index)
    backend_.copy(tensors_[lane_index][in], all + (first + lane_index) * bytes, bytes);
  exchange.gather_lanes(all, bytes);
  for (size_t lane_index = 1; lane_index < lanes; ++lane_index)
    backend_.copy(all, tensors_[lane_index][out], graph_.tensors[out].bytes());
}

}  // namespace lockstep::exec
