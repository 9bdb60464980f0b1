#include "models/onnx/nodes/operands.h"

#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
void set_reshaped(Lowering& lowering, const Node& node, TensorId y) {
  set_output(lowering,
             node,
             ops::reshape(lowering.builder(),
                          lowering.name_of(node) + ".extents",
                          y,
                          shape_of(lowering.value(node.output(0)))));
}

int unshared_parameter(Lowering& lowering, int number) {
  const auto [parameter, transposed] = lowering.readers().source_of(number);
  return parameter >= 0 && !transposed &&
                 lowering.parameters().can_have(parameter, Storage::kAsInFile) &&
                 lowering.readers().only_reader(parameter) != nullptr
             ? parameter
             : -1;
}

void require_floating(const Lowering& lowering, const Node& node) {
  if (is_integer(lowering.value(node.output(0)).type))
    refuse(node, "multiplies integer matrices, which is not supported");
}

}  // namespace lockstep::onnx
