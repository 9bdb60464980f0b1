#include "runtime/graph/ops/rotary.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

void check_attributes(const std::string& name, const RotaryAttributes& a, int64_t width) {
  LOCKSTEP_CHECK(a.head_size > 0 && width % a.head_size == 0, "{}: heads ", name);
  LOCKSTEP_CHECK(
      a.rotated_heads > 0 && a.rotated_heads * a.head_size <= width, "{}: rotated heads ", name);
  LOCKSTEP_CHECK(a.rotary_size >= 2 && a.rotary_size % 2 == 0 && a.rotary_size <= a.head_size,
                 "{}: rotary size {} ",
                 name,
                 a.rotary_size);
  LOCKSTEP_CHECK(a.theta > 0, "{}: theta {} ", name, a.theta);
  if (a.scaling == RotaryScaling::kNone) return;
  LOCKSTEP_CHECK(a.factor >= 1, "{}: factor {} ", name, a.factor);
  if (a.scaling == RotaryScaling::kLinear) return;
  LOCKSTEP_CHECK(a.original_context > 0, "{}: original context ", name);
  if (a.scaling == RotaryScaling::kDynamicNtk) {
    LOCKSTEP_CHECK(a.rotary_size > 2, "{}: dynamic NTK of one pair ", name);
  } else {
    LOCKSTEP_CHECK(a.low_freq_factor < a.high_freq_factor, "{}: factors of frequencies ", name);
  }
}

}  // namespace

TensorId ops::rotary(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     TensorId positions,
                     const RotaryAttributes& attributes) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() >= 3, "{}: x {} ", name, to_string(shape));
  check_attributes(name, attributes, shape.columns());
  if (positions != kNoTensor) {
    Shape tokens;
    for (int k = 0; k + 1 < shape.rank(); ++k) tokens.append(shape[k]);
    LOCKSTEP_CHECK(builder.shape(positions) == tokens && builder[positions].dtype == DType::kI32,
                   "{}: positions ",
                   name);
  }
  const TensorId y = builder.activation_tensor(name, shape);
  builder.append({OpKind::kRotary, name, {x, positions}, {y}, attributes});
  return y;
}

namespace {

OpInputs rotary_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  return first_input_gradient(builder,
                              op,
                              OpKind::kRotaryBackward,
                              {d_outputs[RotaryOut::kY], op.inputs[RotaryIn::kPositions]});
}

// Four products and two sums per pair. The tables, which the heads share, are not counted.
int64_t rotary_flops(const Graph& graph, const Op& op) {
  const auto& attributes = op.as<RotaryAttributes>();
  return 3 * graph.shape(op.inputs[RotaryIn::kX]).rows() * attributes.rotated_heads *
         attributes.rotary_size;
}

}  // namespace

const OpSchema kRotarySchema = {rotary_gradient, rotary_flops, {{RotaryOut::kY, RotaryIn::kX}}};
const OpSchema kRotaryBackwardSchema = {nullptr, rotary_flops, {{RotaryOut::kY, RotaryIn::kX}}};

}  // namespace lockstep::graph
