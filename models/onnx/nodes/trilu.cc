// Trilu: one side of a diagonal.
#include <algorithm>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::onnx {
namespace {

std::vector<Form> rule_trilu(const NodeView& node) {
  if (node.rank(0) < 2) node.refuse("its input has {} axes; must have 2 or more", node.rank(0));
  if (node.has(1)) node.require_type(1, ElementType::kInt64);
  return {node.form(0)};
}

std::vector<Array> evaluate_trilu(const NodeView& node, const std::vector<Form>&) {
  const Array& from = node.array(0);
  const bool upper = node.integer("upper", 1) != 0;
  const int64_t shift =
      node.has(1) ? std::clamp(node.known_integer(1), -kMaxExtent, kMaxExtent) : 0;
  const int64_t columns = from.extents.back();
  const int64_t rows = from.extents[from.extents.size() - 2];
  const size_t bytes = size_of(from.type);
  NewArray made = make_array(from.type, from.extents);
  for (int64_t i = 0; i < from.size(); ++i) {
    const int64_t column = i % columns;
    const int64_t row = i / columns % rows;
    const bool keep = upper ? column >= row + shift : column <= row + shift;
    std::byte* to = made.data + static_cast<size_t>(i) * bytes;
    if (keep)
      std::copy_n(from.data.get() + static_cast<size_t>(i) * bytes, bytes, to);
    else
      std::fill_n(to, bytes, std::byte{0});
  }
  return {made.array};
}

// Sets the elements on one side of a diagonal to 0.
void lower_trilu(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const Extents& extents = lowering.value(node.output(0)).extents;
  const int64_t rows = extents[extents.size() - 2], columns = extents.back();
  int64_t diagonal = 0;
  if (node.input(1) >= 0) {
    const NodeView view = lowering.readers().view(node);
    if (!view.known(1)) refuse(node, "input 1 is computed; must be a constant");
    diagonal = view.known_integer(1);
  }
  const bool upper = node.integer("upper", 1) != 0;
  std::vector<float> kept;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      kept.push_back((upper ? c - r >= diagonal : c - r <= diagonal) ? 1.0f : 0.0f);
  const std::string name = lowering.name_of(node);
  const TensorId mask = builder.constant(name + ".kept", {rows, columns}, kept);
  graph::PointwiseProgram program;
  const int condition = program.input(0), x = program.input(1);
  program.append(graph::PointwiseFunction::kWhere, condition, x, program.constant(0));
  set_output(lowering,
             node,
             ops::pointwise(builder,
                            name,
                            {mask, input_of(lowering, node, 0)},
                            program,
                            is_integer(lowering.value(node.output(0)).type)));
}

constexpr NodeType kNodes[] = {
    {"Trilu", rule_trilu, lower_trilu, evaluate_trilu},
};

}  // namespace

std::span<const NodeType> trilu_nodes() { return kNodes; }

}  // namespace lockstep::onnx
