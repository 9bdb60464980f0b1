// Random ops: dropout, random masks and normal noise. They are never folded. Outside training
// everything is kept: a mask that keeps elements with probability p, and by which the file later
// divides by p, is p itself; and noise is its mean.

#include <optional>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/node_view.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/random_normal.h"

namespace lockstep::onnx {
namespace {

// Outputs: the result, and a mask of the elements that are kept. The ratio is an input from opset
// 12 on.
std::vector<Form> rule_dropout(const NodeView& node) {
  node.require_inputs(1, 3);
  node.require_floating(0);
  return {node.form(0), {ElementType::kBool, node.extents(0)}};
}

ElementType floating_type(const NodeView& node, ElementType otherwise) {
  const ElementType type = type_of_attribute(node, "dtype", otherwise);
  if (!is_floating(type))
    node.refuse("draws elements of type {}; must be floating-point, which attribute dtype may set",
                name_of(type));
  return type;
}

std::vector<Form> rule_like(const NodeView& node) {
  return {{floating_type(node, node.type(0)), node.extents(0)}};
}

std::vector<Form> rule_of_shape(const NodeView& node) {
  return {{floating_type(node, ElementType::kFloat), node.node().integers("shape")}};
}

std::vector<Form> rule_bernoulli(const NodeView& node) {
  node.require_floating(0);
  return {{type_of_attribute(node, "dtype", node.type(0)), node.extents(0)}};
}

// Sets the value to a random mask: 1 with probability `kept`, else 0.
void set_draw(Lowering& lowering, const Node& node, int number, float kept) {
  if (!(kept > 0 && kept <= 1))
    refuse(node, "keeps elements with probability {}; allowed: above 0 and at most 1", kept);
  // Outside training the mask is the number `kept`, so it must be used as a factor. A boolean mask
  // must therefore be cast to numbers.
  if (!is_floating(lowering.value(number).type)) {
    const Node* reader = lowering.readers().only_reader(number);
    const bool casts =
        reader != nullptr && reader->input(0) >= 0 &&
        (is_op(reader, "Cast") ||
         (is_op(reader, "CastLike") && lowering.readers().origin_of(reader->input(0)) == number));
    if (!casts || !is_floating(lowering.value(reader->output(0)).type))
      refuse(node,
             "selects elements by a random mask other than by a product, which is not supported");
  }
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(number));
  const auto filled = [&](float value) {
    return builder.constant(
        name + ".all", shape, std::vector<float>(static_cast<size_t>(shape.elements()), value));
  };
  if (!builder.training() || kept == 1) return lowering.layouts().set(number, filled(kept));
  graph::PointwiseProgram program;
  const int drawn = program.input(0);
  program.append(graph::PointwiseFunction::kLess, program.constant(0), drawn);
  const TensorId scaled = ops::dropout(builder, name, filled(1), 1 - kept);
  lowering.layouts().set(number, ops::pointwise(builder, name + ".kept", {scaled}, program));
}

// The ratio is an attribute in old opsets, and an input in newer ones.
void lower_dropout(Lowering& lowering, const Node& node) {
  float ratio = node.number("ratio", 0.5f);
  if (node.input(1) >= 0) {
    const auto given = number_of(lowering.readers().origin(node.input(1)));
    if (!given) refuse(node, "ratio: is computed; must be a constant");
    ratio = *given;
  }
  if (!(ratio >= 0 && ratio < 1))
    refuse(node, "ratio: value is {}; allowed: at least 0 and below 1", ratio);
  const bool last = lowering.layouts().is_channels_last(node.input(0));
  const TensorId x = input_of(lowering, node, 0, last);
  set_output(
      lowering, node, ops::dropout(lowering.builder(), lowering.name_of(node), x, ratio), last);
}

// Supports numbers in [0, 1) that are only compared with a constant: so exporters write in-place
// dropout and stochastic depth.
void lower_random_uniform(Lowering& lowering, const Node& node) {
  const Node* reader = lowering.readers().only_reader(node.output(0));
  std::optional<float> limit;
  const bool below = is_op(reader, "Less") || is_op(reader, "LessOrEqual");
  const bool above = is_op(reader, "Greater") || is_op(reader, "GreaterOrEqual");
  if (below || above) limit = filling_of(lowering.readers().origin(reader->input(1)));
  if (!limit || node.number("low", 0) != 0 || node.number("high", 1) != 1)
    refuse(node,
           "draws numbers that are used for more than a comparison with a constant, which is not "
           "supported");
  lowering.fusion().mark_fused(*reader);
  set_draw(lowering, node, reader->output(0), below ? *limit : 1 - *limit);
}

// Supports one probability for all elements.
void lower_bernoulli(Lowering& lowering, const Node& node) {
  const auto kept = filling_of(lowering.readers().origin(node.input(0)));
  if (!kept) refuse(node, "its probabilities must be one constant for all elements");
  set_draw(lowering, node, node.output(0), *kept);
}

// Normal numbers for each sample.
void lower_random_normal(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const Network& network = lowering.readers().network();
  const int64_t batch = network.values[static_cast<size_t>(network.inputs[0])].extents[0];
  const Shape shape = shape_of(lowering.value(node.output(0)));
  if (shape.rank() == 0 || shape[0] != batch)
    refuse(node,
           "draws numbers with the extents {}; must have the samples' axis first, as "
           "torch.randn_like(x) of a value (N, ...)",
           to_string(shape));
  const float mean = node.number("mean", 0), scale = node.number("scale", 1);
  const std::string name = lowering.name_of(node);
  const std::vector<float> means(static_cast<size_t>(shape.elements()), mean);
  set_output(lowering,
             node,
             builder.training() ? ops::random_normal(builder, name, shape, mean, scale)
                                : builder.constant(name + ".mean", shape, means));
}

constexpr NodeType kNodes[] = {
    {"Dropout", rule_dropout, lower_dropout},
    {"RandomUniformLike", rule_like, lower_random_uniform},
    {"RandomNormalLike", rule_like, lower_random_normal},
    {"RandomUniform", rule_of_shape, lower_random_uniform},
    {"RandomNormal", rule_of_shape, lower_random_normal},
    {"Bernoulli", rule_bernoulli, lower_bernoulli},
};

}  // namespace

std::span<const NodeType> random_nodes() { return kNodes; }

}  // namespace lockstep::onnx
