#include "tests/ops/op_test.h"

#include <cmath>
#include <deque>
#include <memory>
#include <set>

#include "runtime/base/half.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/schema.h"
#include "tests/ops/devices.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::test {
namespace {

// ---- The graph ----

const exec::Implementation* find_reference(const OpTest& test, graph::OpKind kind) {
  for (const exec::Implementation& row : test.reference) {
    if (row.kind == kind) return &row;
  }
  return nullptr;
}

// The op, what stands before it, and the ops of its backward rule.
struct OpGraph {
  graph::Graph graph;              // without ops where there is nothing to do
  size_t op = 0;                   // its place in the graph
  std::vector<bool> given;         // by tensor: an input, which no op that is run writes
  graph::OpOutputs d_outputs;      // by output of the op
  std::vector<TensorId> d_inputs;  // by input

  const graph::Op& forward() const { return graph.ops[op]; }
};

bool is_float(DType type) { return type != DType::kI32 && type != DType::kU8; }

// A root of differentiation: its gradient, an output, lies over its first input.
bool is_loss(const graph::Graph& graph, const graph::Op& op) {
  return op.outputs[graph::LossOut::kStatistics] == graph.result &&
         graph[graph.result].dtype == DType::kF64;
}

OpGraph make_graph(const OpTest& test, DType compute) {
  graph::GraphOptions options(test.gradients > 0 ? graph::Purpose::kTraining
                                                 : graph::Purpose::kInference);
  options.compute = compute;
  options.lanes = test.lanes;
  options.head_multiple = test.head_multiple;
  options.class_weights = test.class_weights;
  options.pos_weight = test.pos_weight;
  options.bf16x3 = test.bf16x3;
  graph::GraphBuilder builder(options);
  test.build(builder);
  OpGraph made;
  if (builder.graph().ops.empty()) return made;  // nothing to do in this type
  if (builder.graph().result == kNoTensor) builder.keep(builder.graph().ops.back().outputs.first());
  made.graph = std::move(builder).finish();
  graph::Graph& graph = made.graph;
  const size_t last = graph.ops.size() - 1;
  made.op = last;
  if (is_loss(graph, graph.ops[last]) && test.gradients > 0) {
    graph::GradientBuilder(graph, {}).add_loss_gradients(graph.ops[last]);
  } else if (test.gradients > 0) {
    const graph::Op op = graph.ops[last];  // a copy: appending moves the vector
    graph::GradientBuilder gradients(graph, std::vector<bool>(graph.tensors.size(), true));
    for (const TensorId output : op.outputs) {
      const bool passes = made.d_outputs.size() < test.gradients && output != kNoTensor;
      made.d_outputs.push_back(passes ? gradients.new_gradient(output) : kNoTensor);
    }
    made.d_inputs = graph::schema_of(op.kind).backward(gradients, op, made.d_outputs);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId input = op.inputs.at(k);  // perhaps a parameter, which has its own gradient
      if (input != kNoTensor && made.d_inputs[k] == kNoTensor)
        made.d_inputs[k] = graph[input].gradient;
    }
  }
  made.given.assign(graph.tensors.size(), true);
  for (const graph::Op& op : graph.ops) {
    if (find_reference(test, op.kind) == nullptr) continue;
    for (const TensorId id : op.outputs) {
      if (id != kNoTensor) made.given[static_cast<size_t>(id)] = false;
    }
  }
  return made;
}

// ---- Memory ----

// Of rows with their padding.
int64_t elements_of(const graph::Tensor& tensor) {
  return static_cast<int64_t>(tensor.bytes() / size_of(tensor.dtype));
}

// Calls f.operator()<T>() for the type that a tensor stores.
template <typename F>
void with_type(DType type, F f) {
  switch (type) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kF64: return f.template operator()<double>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF16: return f.template operator()<Float16>();
    case DType::kI32: return f.template operator()<int32_t>();
    case DType::kU8: return f.template operator()<uint8_t>();
  }
}

template <typename T>
double widened(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return to_float(value);
}
template <typename T>
T narrowed(double value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return round_to<T>(static_cast<float>(value));
}

using Bytes = std::vector<std::byte>;

// All tensors of a graph in memory, each between guard zones, `offset` elements past a boundary of
// 64 bytes.
class Arrays {
 public:
  // doubles: whatever floats the tensors store, these are.
  Arrays(const graph::Graph& graph, bool doubles, int64_t offset)
      : graph_(graph), doubles_(doubles) {
    for (const graph::Tensor& tensor : graph.tensors) {
      const auto size = static_cast<int64_t>(size_of(type_of(tensor)));
      memory_.emplace_back(elements_of(tensor) * size, offset * size);
      pointers_.push_back(memory_.back().data());
    }
  }
  std::byte* const* pointers() const { return pointers_.data(); }
  // Where the output lies is where the input does.
  void lay_over(TensorId output, TensorId input) {
    pointers_[static_cast<size_t>(output)] = pointers_[static_cast<size_t>(input)];
    over_.insert(output);
  }
  bool lies_over_input(TensorId output) const { return over_.contains(output); }

  std::vector<double> read(TensorId id) const {
    std::vector<double> values(static_cast<size_t>(elements_of(graph_[id])));
    with_type(type_of(graph_[id]), [&]<typename T>() {
      const auto* from = reinterpret_cast<const T*>(pointers_[static_cast<size_t>(id)]);
      for (size_t i = 0; i < values.size(); ++i) values[i] = widened(from[i]);
    });
    return values;
  }
  // Those of one NaN for all NaNs, whose signs follow the order of operands.
  Bytes bytes(TensorId id) const {
    const std::byte* const from = pointers_[static_cast<size_t>(id)];
    const size_t size = size_of(type_of(graph_[id]));
    Bytes all(from, from + static_cast<size_t>(elements_of(graph_[id])) * size);
    with_type(type_of(graph_[id]), [&]<typename T>() {
      auto* const values = reinterpret_cast<T*>(all.data());
      for (size_t i = 0; i < all.size() / sizeof(T); ++i) {
        if (std::isnan(widened(values[i]))) values[i] = narrowed<T>(std::nan(""));
      }
    });
    return all;
  }
  // Rows that follow a parameter, or its gradient, are 0 whatever `values` has for them.
  void write(TensorId id, const std::vector<double>& values) {
    const graph::Tensor& tensor = graph_[id];
    const size_t kept =
        tensor.padded_rows > 0 ? static_cast<size_t>(tensor.shape.elements()) : values.size();
    with_type(type_of(tensor), [&]<typename T>() {
      auto* to = reinterpret_cast<T*>(pointers_[static_cast<size_t>(id)]);
      for (size_t i = 0; i < values.size(); ++i) to[i] = narrowed<T>(i < kept ? values[i] : 0);
    });
  }

 private:
  DType type_of(const graph::Tensor& tensor) const {
    return doubles_ && is_float(tensor.dtype) ? DType::kF64 : tensor.dtype;
  }

  const graph::Graph& graph_;
  bool doubles_;
  std::deque<Guarded<std::byte>> memory_;
  std::vector<std::byte*> pointers_;
  std::set<TensorId> over_;  // outputs that lie over inputs
};

void fill_inputs(const OpTest& test, const OpGraph& of, Arrays& arrays) {
  for (size_t id = 0; id < of.graph.tensors.size(); ++id) {
    if (!of.given[id]) continue;
    const graph::Tensor& tensor = of.graph.tensors[id];
    std::vector<double> values(static_cast<size_t>(elements_of(tensor)));
    fill_uniform(values, test.low, test.high, id + 1);
    for (size_t i = 0; test.value && i < values.size(); ++i)
      values[i] = test.value(tensor.name, static_cast<int64_t>(i));
    arrays.write(static_cast<TensorId>(id), values);
  }
}

// ---- Runs ----

graph::OpCall run_reference(const OpTest& test,
                            const graph::Graph& graph,
                            const graph::Op& op,
                            const Arrays& arrays) {
  const graph::OpCall call(graph, op, arrays.pointers(), nullptr, test.lane, nullptr);
  const exec::Implementation* const reference = find_reference(test, op.kind);
  if (reference == nullptr) {
    ADD_FAILURE() << "no reference of " << graph::name_of(op.kind);
    std::abort();
  }
  reference->run(call);
  return call;
}

double half_spacing(DType type) {
  switch (type) {
    case DType::kBF16: return 0x1p-8;
    case DType::kF16: return 0x1p-11;
    default: return 0x1p-24;
  }
}

// Half of the distance of neighbours near 0.
double half_least(DType type) { return type == DType::kF16 ? 0x1p-25 : 0; }

// The bytes of all outputs.
Bytes outputs_of(const graph::Op& op, const Arrays& arrays) {
  Bytes all;
  for (const TensorId id : op.outputs) {
    if (id == kNoTensor) continue;
    const Bytes bytes = arrays.bytes(id);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

using Values = std::vector<std::pair<TensorId, std::vector<double>>>;

template <typename Ids>
Values read(const Ids& ids, const Arrays& arrays) {
  Values values;
  for (const TensorId id : ids) {
    if (id != kNoTensor) values.push_back({id, arrays.read(id)});
  }
  return values;
}

// What the reference makes of an op's inputs. Most devices give it the same.
struct KnownOutputs {
  DType compute;
  size_t op;  // its index in the graph
  Values inputs, outputs;
};

class Comparison {
 public:
  Comparison(const OpTest& test,
             const OpDevice& device,
             DType compute,
             int64_t offset,
             std::vector<KnownOutputs>& known)
      : test_(test),
        device_(device),
        compute_(compute),
        known_(known),
        of_(make_graph(test, compute)),
        offset_(offset),
        where_(test.name + " in " + lockstep::name_of(compute) + " on " + device.name +
               (offset > 0 ? ", odd addresses" : "")),
        arrays_(of_.graph, false, offset),
        expected_(of_.graph, true, 0) {
    if (of_.graph.ops.empty()) return;
    const graph::Op& op = of_.forward();
    if (is_loss(of_.graph, op) && op.outputs.size() > 1) {
      const TensorId over = op.outputs[graph::LossOut::kGradient],
                     x = op.inputs[graph::LossIn::kPrediction];
      for (Arrays* arrays : {&arrays_, &expected_}) arrays->lay_over(over, x);
    }
    fill_inputs(test, of_, arrays_);
  }

  // Each op goes on from what the device has made of those before it.
  void check() {
    for (const graph::Op& op : of_.graph.ops) {
      bool known = false;
      for (const exec::Implementation& implementation : device_.implementations(test_)) {
        if (implementation.kind != op.kind) continue;
        known = true;
        if (can_run(op, implementation)) check(op, implementation);
      }
      if (known && device_.check_planned != nullptr)
        device_.check_planned(test_, of_.graph, op, where_);
      if (!known && find_reference(test_, op.kind) != nullptr) take_from_reference(op);
    }
  }

 private:
  bool can_run(const graph::Op& op, const exec::Implementation& implementation) const {
    if (!implementation.supports(graph::OpCall(of_.graph, op))) return false;
    // Libraries are given arrays that begin on boundaries.
    return implementation.available == nullptr ||
           (offset_ == 0 && device_.available(implementation, of_.graph, op));
  }

  // Of an op of another test, such as the backward pass of an activation.
  void take_from_reference(const graph::Op& op) {
    for (const auto& [id, values] : read(op.inputs, arrays_)) expected_.write(id, values);
    run_reference(test_, of_.graph, op, expected_);
    for (const auto& [id, values] : read(op.outputs, expected_)) arrays_.write(id, values);
  }

  void check(const graph::Op& op, const exec::Implementation& implementation) {
    SCOPED_TRACE(where_ + ": " + graph::name_of(op.kind) + " by " + implementation.name);
    inputs_ = read(op.inputs, arrays_);
    found_ = read(op.outputs, arrays_);
    for (auto& [id, values] : found_) fill_uniform(values, -1, 1, static_cast<uint64_t>(id));
    Bytes first;
    for (const Way& way : device_.ways) {
      way.with([&] { run(op, implementation, arrays_); });
      Bytes bits = outputs_of(op, arrays_);
      if (first.empty())
        first = std::move(bits);
      else
        EXPECT_EQ(first, bits) << way.name << " gives other bits than " << device_.ways[0].name;
    }
    compare(op);
    device_.ways[0].with([&] { check_in_place(op, implementation); });
  }

  // The inputs, over which some may be written, and what an op finds where it writes: it may add to
  // it.
  void prepare(Arrays& arrays) const {
    for (const auto& [id, values] : inputs_) arrays.write(id, values);
    for (const auto& [id, values] : found_) {
      if (!arrays.lies_over_input(id)) arrays.write(id, values);
    }
  }

  void run(const graph::Op& op, const exec::Implementation& implementation, Arrays& arrays) {
    prepare(arrays);
    const size_t bytes = implementation.workspace_bytes(graph::OpCall(of_.graph, op));
    // Libraries ask for much, which is kept for all ways.
    if (workspace_ == nullptr || workspace_->size() != static_cast<int64_t>(bytes))
      workspace_ = std::make_unique<Guarded<std::byte>>(static_cast<int64_t>(bytes));
    device_.run(implementation, of_.graph, op, arrays.pointers(), workspace_->data(), test_.lane);
    EXPECT_TRUE(workspace_->intact()) << "written outside of the workspace";
  }

  // With the reference, on the same inputs.
  void compare(const graph::Op& op) {
    prepare(expected_);
    const graph::OpCall expected(of_.graph, op, expected_.pointers(), nullptr, test_.lane, nullptr);
    const auto index = static_cast<size_t>(&op - of_.graph.ops.data());
    const auto known = std::ranges::find_if(known_, [&](const KnownOutputs& k) {
      return k.compute == compute_ && k.op == index && k.inputs == inputs_;
    });
    if (known == known_.end()) {
      run_reference(test_, of_.graph, op, expected_);
      known_.push_back({compute_, index, inputs_, read(op.outputs, expected_)});
    } else {
      for (const auto& [id, values] : known->outputs) expected_.write(id, values);
    }
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId id = op.outputs.at(k);
      if (id == kNoTensor) continue;
      expect_close(
          arrays_.read(id),
          expected_.read(id),
          [&](int64_t i) {
            const Tolerance tolerance = test_.tolerance(expected, graph::OutputName::at(k), i);
            return kEps * tolerance.floats + half_spacing(compute_) * tolerance.stored +
                   half_least(compute_);
          },
          of_.graph[id].name);
    }
  }

  struct Place {
    TensorId output, input;
  };

  // Over each input that the schema names, and over each two of them at once.
  void check_in_place(const graph::Op& op, const exec::Implementation& implementation) {
    std::vector<Place> places;
    for (const auto& [out, in] : graph::schema_of(op.kind).in_place) {
      const TensorId output = op.outputs[out], input = op.inputs[in];
      if (is_loss(of_.graph, op) || output == kNoTensor || input == kNoTensor ||
          of_.graph[output].dtype != of_.graph[input].dtype ||
          of_.graph[output].bytes() != of_.graph[input].bytes())
        continue;
      places.push_back({output, input});
    }
    for (size_t a = 0; a < places.size(); ++a) {
      check_over(op, implementation, {places[a]});
      for (size_t b = a + 1; b < places.size(); ++b) {
        if (places[a].output != places[b].output && places[a].input != places[b].input)
          check_over(op, implementation, {places[a], places[b]});
      }
    }
  }

  void check_over(const graph::Op& op,
                  const exec::Implementation& implementation,
                  const std::vector<Place>& places) {
    Arrays over(of_.graph, false, offset_);
    for (const Place& place : places) over.lay_over(place.output, place.input);
    run(op, implementation, over);
    for (const Place& place : places) {
      EXPECT_EQ(over.bytes(place.output), arrays_.bytes(place.output))
          << "over " << of_.graph[place.input].name << ": " << of_.graph[place.output].name;
    }
  }

  const OpTest& test_;
  const OpDevice& device_;
  DType compute_;
  std::vector<KnownOutputs>& known_;
  OpGraph of_;
  int64_t offset_;
  std::string where_;
  Arrays arrays_, expected_;
  Values inputs_, found_;  // what the op under test reads, and what it finds where it writes
  std::unique_ptr<Guarded<std::byte>> workspace_;
};

}  // namespace

void check_on_all_devices(const OpTest& test) {
  std::vector<OpDevice> devices = cpu_devices();
  for (OpDevice& device : cuda_devices()) devices.push_back(std::move(device));
  std::vector<KnownOutputs> known;
  for (const OpDevice& device : devices) {
    if (test.needs_fma && !device.has_fma) continue;
    for (const DType type : device.types) {
      for (const int64_t offset : {0, 1}) {
        if (offset == 0 || test.any_address) Comparison(test, device, type, offset, known).check();
      }
    }
  }
}

std::vector<double> first_output_of_reference(const OpTest& test) {
  const OpGraph of = make_graph(test, DType::kF32);
  Arrays arrays(of.graph, true, 0);
  fill_inputs(test, of, arrays);
  run_reference(test, of.graph, of.forward(), arrays);
  return arrays.read(of.forward().outputs.first());
}

void check_gradient_of_reference(const OpTest& test) {
  OpGraph of = make_graph(test, DType::kF32);
  const graph::Graph& graph = of.graph;
  Arrays arrays(graph, true, 0);
  fill_inputs(test, of, arrays);
  const graph::Op& forward = of.forward();
  for (const graph::Op& op : graph.ops) run_reference(test, graph, op, arrays);

  std::vector<std::pair<TensorId, std::vector<double>>> checked;  // input, its gradient
  const bool loss = is_loss(graph, forward);
  for (size_t k = 1; loss && k < forward.outputs.size(); ++k) {  // of parameters behind the target
    const bool first = graph::OutputName::at(k) == graph::LossOut::kGradient;
    const TensorId input =
        first ? forward.inputs[graph::LossIn::kPrediction] : forward.inputs.at(k);
    checked.push_back({input, arrays.read(forward.outputs.at(k))});
  }
  for (size_t k = 0; !loss && k < forward.inputs.size(); ++k) {
    const TensorId id = forward.inputs.at(k);
    if (id == kNoTensor || of.d_inputs[k] == kNoTensor) continue;
    if (graph[id].running_momentum == 0)  // else it is no gradient: see Tensor
      checked.push_back({id, arrays.read(of.d_inputs[k])});
  }
  ASSERT_FALSE(checked.empty()) << test.name;
  for (const auto& [input, gradient] : checked) {
    std::vector<double> x = arrays.read(input);
    // The loss, or the outputs, weighed with the gradients that the backward pass was given.
    const auto f = [&, input = input] {
      arrays.write(input, x);
      run_reference(test, graph, forward, arrays);
      if (loss)
        return test.lane.gradient_scale *
               arrays.read(forward.outputs[graph::LossOut::kStatistics])[graph::kLossSum];
      double sum = 0;
      for (size_t k = 0; k < forward.outputs.size(); ++k) {
        const TensorId given = of.d_outputs.at(k);
        if (given == kNoTensor) continue;
        const std::vector<double> y = arrays.read(forward.outputs.at(k)), d_y = arrays.read(given);
        for (size_t i = 0; i < y.size(); ++i) sum += d_y[i] * y[i];
      }
      return sum;
    };
    expect_gradient(f, x, gradient, test.name + ": d_" + graph[input].name);
    arrays.write(input, x);
  }
}

}  // namespace lockstep::test
