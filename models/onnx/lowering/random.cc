// Random ops: dropout and random masks. Outside training everything is kept: a mask that keeps
// elements with probability p, and by which the file later divides by p, is p itself.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::onnx {
namespace {

// Sets the value to a random mask: 1 with probability `kept`, else 0.
void set_draw(Lowering& lowering, const Node& node, int number, float kept) {
  if (!(kept > 0 && kept <= 1))
    refuse(node,
           fmt::format("keeps elements with probability {}; allowed: above 0 and at most 1", kept));
  // Outside training the mask is the number `kept`, so it must be used as a factor. A boolean mask
  // must therefore be cast to numbers.
  if (!is_floating(lowering.value(number).type)) {
    const Node* reader = lowering.only_reader(number);
    const bool casts = reader != nullptr && reader->input(0) >= 0 &&
                       (is_op(reader, "Cast") || (is_op(reader, "CastLike") &&
                                                  lowering.origin_of(reader->input(0)) == number));
    if (!casts || !is_floating(lowering.value(reader->output(0)).type))
      refuse(node,
             "selects elements by a random mask other than by a product, which is not supported");
  }
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(number));
  const auto filled = [&](float value) {
    return builder.constant(
        name + ".all", shape, std::vector<float>(static_cast<size_t>(shape.elements()), value));
  };
  if (!builder.training() || kept == 1) return lowering.set(number, filled(kept));
  PointwiseProgram program;
  const int drawn = program.input(0);
  program.append(PointwiseFunction::kLess, program.constant(0), drawn);
  const TensorId scaled = ops::dropout(builder, name, filled(1), 1 - kept);
  lowering.set(number, ops::pointwise(builder, name + ".kept", {scaled}, program));
}

}  // namespace

// The ratio is an attribute in old opsets, and an input in newer ones.
void lower_dropout(Lowering& lowering, const Node& node) {
  float ratio = node.number("ratio", 0.5f);
  if (node.input(1) >= 0) {
    const auto given = number_of(lowering.value(lowering.origin_of(node.input(1))));
    if (!given) refuse(node, "ratio: is computed; must be a constant");
    ratio = *given;
  }
  if (!(ratio >= 0 && ratio < 1))
    refuse(node, fmt::format("ratio: value is {}; allowed: at least 0 and below 1", ratio));
  const bool last = lowering.is_channels_last(node.input(0));
  const TensorId x = last ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0));
  lowering.set(
      node.output(0), ops::dropout(lowering.builder(), lowering.name_of(node), x, ratio), last);
}

// Supports numbers in [0, 1) that are only compared with a constant: so exporters write in-place
// dropout and stochastic depth.
void lower_random_uniform(Lowering& lowering, const Node& node) {
  const Node* reader = lowering.only_reader(node.output(0));
  std::optional<float> limit;
  const bool below = is_op(reader, "Less") || is_op(reader, "LessOrEqual");
  const bool above = is_op(reader, "Greater") || is_op(reader, "GreaterOrEqual");
  if (below || above) limit = filling_of(lowering.value(lowering.origin_of(reader->input(1))));
  if (!limit || node.number("low", 0) != 0 || node.number("high", 1) != 1)
    refuse(node,
           "draws numbers that are used for more than a comparison with a constant, which is not "
           "supported");
  lowering.mark_fused(*reader);
  set_draw(lowering, node, reader->output(0), below ? *limit : 1 - *limit);
}

// Supports one probability for all elements.
void lower_bernoulli(Lowering& lowering, const Node& node) {
  const auto kept = filling_of(lowering.value(lowering.origin_of(node.input(0))));
  if (!kept) refuse(node, "its probabilities must be one constant for all elements");
  set_draw(lowering, node, node.output(0), *kept);
}

}  // namespace lockstep::onnx
