// An elementwise node becomes a deferred program, which is appended when its value is requested. An
// elementwise node that reads the value earlier may include the program in its own, if that neither
// computes more nor keeps more for the backward pass.
#include "models/onnx/nodes/lowering/pointwise.h"

#include <algorithm>
#include <set>

#include "models/onnx/nodes/formula.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

using Program = graph::PointwiseProgram;

// Makes the program of a node, including the programs of the values in `taken`.
class Fusion {
 public:
  Fusion(Lowering& lowering, const Node& node, const std::set<int>& taken)
      : lowering_(lowering), taken_(taken) {
    std::vector<int> operands;
    for (const int input : node.inputs) operands.push_back(input < 0 ? -1 : operand(input));
    Formula formula(made_.program,
                    node,
                    lowering.value(node.input(0)).type,
                    lowering.value(node.output(0)).type,
                    operands);
    made_.program.set_result(formula_of(node.op)(formula));
    made_.program = made_.program.pruned();
    drop_unread_inputs(lowering.value(node.output(0)).extents);
  }

  DeferredPointwise& made() { return made_; }

 private:
  int operand(int number) {
    number = lowering_.readers().origin_of(number);
    const Value& value = lowering_.value(number);
    if (const auto constant = number_of(value))
      return made_.program.constant(storable(*constant, lowering_.builder().options().compute));
    if (taken_.count(number) == 0) return input(number);
    const DeferredPointwise& part = *lowering_.layouts().deferred(number);
    std::vector<int> inputs;
    for (const int value_number : part.inputs) inputs.push_back(input(value_number));
    return made_.program.append(part.program, inputs);
  }

  int input(int number) {
    const auto found = std::ranges::find(made_.inputs, number);
    const auto index = static_cast<int>(found - made_.inputs.begin());
    if (found == made_.inputs.end()) made_.inputs.push_back(number);
    return made_.program.input(index);
  }

  // Removes inputs that the program does not use, unless the extents of the result depend on them.
  void drop_unread_inputs(const Extents& result) {
    std::vector<int> read, numbers(made_.inputs.size(), 0);
    Shape shape;
    for (size_t k = 0; k < made_.inputs.size(); ++k) {
      if (!made_.program.uses(static_cast<int>(k))) continue;
      numbers[k] = static_cast<int>(read.size());
      read.push_back(made_.inputs[k]);
      graph::broadcast(shape_of(lowering_.value(read.back())), shape);
    }
    if (read.size() == made_.inputs.size() || shape.elements() != elements(result)) return;
    made_.program = made_.program.renumbered(numbers);
    made_.inputs = std::move(read);
  }

  Lowering& lowering_;
  const std::set<int>& taken_;
  DeferredPointwise made_;
};

// The inputs that must be kept for the backward pass, of those that are as large as the result.
std::set<int> kept_for_backward(const Readers& readers,
                                const DeferredPointwise& of,
                                int64_t result) {
  std::set<int> kept;
  for (size_t k = 0; k < of.inputs.size(); ++k) {
    if (!readers.learns(of.inputs[k])) continue;
    const auto slope = of.program.derivative(static_cast<int>(k));
    for (size_t j = 0; slope && j < of.inputs.size(); ++j) {
      const Value& value = readers.value(of.inputs[j]);
      if (value.kind != ValueKind::kConstant && elements(value.extents) == result &&
          slope->uses(static_cast<int>(j) + 1))
        kept.insert(of.inputs[j]);
    }
  }
  return kept;
}

// The node's program, including the programs of inputs that only this node reads, if that keeps no
// more values for the backward pass. Greedy: inputs are tried in order.
DeferredPointwise fused(Lowering& lowering, const Node& node) {
  std::set<int> taken;
  DeferredPointwise best = Fusion(lowering, node, taken).made();
  const int64_t result = elements(lowering.value(node.output(0)).extents);
  for (const int input : node.inputs) {
    if (input < 0 || lowering.layouts().deferred(input) == nullptr) continue;
    const int number = lowering.readers().origin_of(input);
    if (taken.count(number) > 0 || lowering.readers().only_reader(number) != &node ||
        elements(lowering.value(number).extents) != result)
      continue;
    taken.insert(number);
    DeferredPointwise trial = Fusion(lowering, node, taken).made();
    std::set<int> separate = kept_for_backward(lowering.readers(), best, result);
    separate.merge(
        kept_for_backward(lowering.readers(), *lowering.layouts().deferred(number), result));
    if (trial.program.fits() &&
        kept_for_backward(lowering.readers(), trial, result).size() <= separate.size())
      best = std::move(trial);
    else
      taken.erase(number);
  }
  return best;
}

// The native activation that computes the program; kNone if there is none.
Activation activation_of(const Program& program) {
  struct Known {
    Activation activation;
    const char* op;
    std::map<std::string, Attribute> attributes;
  };
  static const std::vector<Known> kKnown = {
      {Activation::kRelu, "Relu", {}},
      {Activation::kTanh, "Tanh", {}},
      {Activation::kSilu, "Swish", {}},
      {Activation::kGeluErf, "Gelu", {}},
      {Activation::kGeluTanh, "Gelu", {{"approximate", std::string("tanh")}}}};
  for (const Known& known : kKnown) {
    Node node;
    node.attributes = known.attributes;
    Program other;
    Formula formula(other, node, ElementType::kFloat, ElementType::kFloat, {other.input(0)});
    other.set_result(formula_of(known.op)(formula));
    if (other.pruned() == program) return known.activation;
  }
  return Activation::kNone;
}

// An input in the layout in which a channels-last result with `rank` axes reads it.
TensorId last_input(
    graph::GraphBuilder& builder, Layouts& layouts, int number, const Value& value, size_t rank) {
  const Extents& extents = value.extents;
  if (extents.size() == rank) return layouts.channels_last(number);
  const TensorId plain = layouts.plain(number);
  if (elements(extents) == 1) return plain;
  const std::string name = value.name + ".channels_last";
  const Shape shape = channels_last_shape(extents, rank);
  const bool has_channels = extents.size() + 1 == rank;  // before the pixels
  if (!has_channels || extents[0] == 1 || elements({extents.begin() + 1, extents.end()}) == 1)
    return ops::reshape(builder, name, plain, shape);
  std::vector<int> permutation;
  for (int d = 1; d < static_cast<int>(extents.size()); ++d) permutation.push_back(d);
  permutation.push_back(0);
  return ops::transpose(builder, name, plain, permutation);
}

}  // namespace

void lower_pointwise(Lowering& lowering, const Node& node) {
  DeferredPointwise made = fused(lowering, node);
  if (!made.program.fits())
    refuse(node, "has {} inputs; allowed: at most {}", made.inputs.size(), Program::kMaxInputs);
  made.name = lowering.name_of(node);
  const Extents& extents = lowering.value(node.output(0)).extents;
  // The layout is that of the inputs that are as large as the result, or else of any input.
  bool any_last = false, any_full = false, full_last = false;
  for (const int input : made.inputs) {
    if (lowering.value(input).extents.size() != extents.size()) continue;
    const bool last = lowering.layouts().is_channels_last(input);
    const bool full = lowering.value(input).extents == extents;
    any_last |= last;
    any_full |= full;
    full_last |= full && last;
  }
  made.channels_last = extents.size() > 2 && (any_full ? full_last : any_last);
  lowering.layouts().defer(node.output(0), std::move(made));
}

TensorId append_pointwise(graph::GraphBuilder& builder,
                          const Readers& readers,
                          Layouts& layouts,
                          int number,
                          const DeferredPointwise& what) {
  const Value& value = readers.value(number);
  const size_t rank = value.extents.size();
  const Shape shape =
      what.channels_last ? channels_last_shape(value.extents, rank) : shape_of(value);
  std::vector<TensorId> inputs;
  for (const int input : what.inputs)
    inputs.push_back(what.channels_last
                         ? last_input(builder, layouts, input, readers.value(input), rank)
                         : layouts.plain(input));
  const bool numbers = is_floating(value.type);
  const auto has_result_form = [&](TensorId tensor) {
    return builder.shape(tensor) == shape && builder[tensor].dtype == builder.options().compute;
  };
  if (numbers && !inputs.empty() && std::ranges::all_of(inputs, has_result_form)) {
    Program cast, sum;
    cast.input(0);
    const int a = sum.input(0), b = sum.input(1);
    sum.append(graph::PointwiseFunction::kAdd, a, b);
    if (what.program == cast) return inputs[0];
    if (what.program == sum) return ops::add(builder, what.name, inputs[0], inputs[1]);
    if (const Activation found = activation_of(what.program); found != Activation::kNone)
      return ops::activation(builder, what.name, inputs[0], found);
  }
  const TensorId y =
      ops::pointwise(builder, what.name, inputs, what.program, is_integer(value.type));
  return shaped(builder, what.name + ".extents", y, shape);
}

TensorId append_functions(graph::GraphBuilder& builder,
                          const std::string& name,
                          TensorId x,
                          const std::vector<graph::PointwiseFunction>& functions) {
  if (functions.empty()) return x;
  Program program;
  int value = program.input(0);
  for (const graph::PointwiseFunction function : functions) value = program.append(function, value);
  return ops::pointwise(builder, name, {x}, program);
}

TensorId append_function(graph::GraphBuilder& builder,
                         const std::string& name,
                         graph::PointwiseFunction function,
                         TensorId a,
                         TensorId b) {
  Program program;
  const int first = program.input(0), second = program.input(1);
  program.append(function, first, second);
  return ops::pointwise(builder, name, {a, b}, program);
}

TensorId append_squares(graph::GraphBuilder& builder, const std::string& name, TensorId x) {
  Program program;
  const int value = program.input(0);
  program.append(graph::PointwiseFunction::kMul, value, value);
  return ops::pointwise(builder, name, {x}, program);
}

}  // namespace lockstep::onnx
