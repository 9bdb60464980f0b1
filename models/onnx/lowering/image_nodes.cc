#include "models/onnx/lowering/image_nodes.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::onnx {

Extent2d extent2d(const Node& node, const std::vector<int64_t>& list, const char* attribute) {
  if (list.size() != 2)
    refuse(
        node,
        fmt::format(
            "{}: has {} numbers; only images of two axes are known here", attribute, list.size()));
  return {list[0], list[1]};
}

void require_images(Lowering& lowering, const Node& node) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  if (rank != 4)
    refuse(node, fmt::format("takes {} axes; only images (N, C, H, W) are known here", rank));
}

TensorId weight_of_images(Lowering& lowering, const Node& node) {
  const Lowering::Source source = lowering.source_of(node.input(1));
  if (source.value < 0 || source.transposed)
    refuse(node, "W: is computed; only weights of the file are known here");
  const TensorId weight = lowering.parameter(source.value, Storage::kChannelsLast);
  lowering.builder().set_channels_last(weight, lowering.builder().shape(weight));
  return weight;
}

TensorId bias_of_images(Lowering& lowering, const Node& node) {
  if (node.input(2) < 0) return kNoTensor;
  const Value& origin = lowering.value(lowering.origin_of(node.input(2)));
  if (origin.kind == ValueKind::kConstant &&
      std::ranges::all_of(origin.array.as_float(), [](float x) { return x == 0; }))
    return kNoTensor;
  const Lowering::Source source = lowering.source_of(node.input(2));
  if (source.value < 0) refuse(node, "B: is computed; only biases of the file are known here");
  return lowering.parameter(source.value);
}

}  // namespace lockstep::onnx
