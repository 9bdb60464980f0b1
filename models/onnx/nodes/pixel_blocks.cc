// DepthToSpace and SpaceToDepth: blocks of pixels and channels.
#include <string>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// Blocks of pixels are rearranged by a reshape to `between`, a transposition of its axes by
// `order`, and a reshape to `after`.
struct Blocks {
  Extents between;
  std::vector<size_t> order;
  Extents after;
};

int64_t block_size(const NodeView& node) {
  node.require_rank(0, 4, 4);
  return node.integer("blocksize", 0, 1, 256);
}

Blocks depth_to_space(const NodeView& node) {
  const int64_t b = block_size(node);
  const Extents& e = node.extents(0);
  if (e[1] % (b * b) != 0) node.refuse("has {} channels; must have a multiple of {}", e[1], b * b);
  const int64_t c = e[1] / (b * b);
  const Extents after = {e[0], c, e[2] * b, e[3] * b};
  const std::string mode = node.node().text("mode", "DCR");
  if (mode == "DCR") return {{e[0], b, b, c, e[2], e[3]}, {0, 3, 4, 1, 5, 2}, after};
  if (mode != "CRD") node.refuse("attribute mode is {}; must be DCR or CRD", mode);
  return {{e[0], c, b, b, e[2], e[3]}, {0, 1, 4, 2, 5, 3}, after};
}

Blocks space_to_depth(const NodeView& node) {
  const int64_t b = block_size(node);
  const Extents& e = node.extents(0);
  if (e[2] % b != 0 || e[3] % b != 0)
    node.refuse("extents {}; height and width must be multiples of {}", to_string(e), b);
  return {{e[0], e[1], e[2] / b, b, e[3] / b, b},
          {0, 3, 5, 1, 2, 4},
          {e[0], e[1] * b * b, e[2] / b, e[3] / b}};
}

template <Blocks (*kBlocks)(const NodeView&)>
std::vector<Form> rule_blocks(const NodeView& node) {
  return {{node.type(0), kBlocks(node).after}};
}

template <Blocks (*kBlocks)(const NodeView&)>
std::vector<Array> evaluate_blocks(const NodeView& node, const std::vector<Form>&) {
  const Blocks blocks = kBlocks(node);
  const std::vector<int64_t> from = strides_of(blocks.between);
  Extents extents;
  std::vector<int64_t> strides;
  for (const size_t axis : blocks.order) {
    extents.push_back(blocks.between[axis]);
    strides.push_back(from[axis]);
  }
  return {with_extents(strided_copy(node.array(0), extents, strides), blocks.after)};
}

// (N, H, W, channels of b x b blocks) -> (N, H b, W b, channels).
void lower_depth_to_space(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.layouts().channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1), channels = shape[3] / (block * block);
  const bool channels_first = node.text("mode", "DCR") == "CRD";
  const Shape split = channels_first ? Shape{shape[0], shape[1], shape[2], channels, block, block}
                                     : Shape{shape[0], shape[1], shape[2], block, block, channels};
  const std::vector<int> order =
      channels_first ? std::vector<int>{0, 1, 4, 2, 5, 3} : std::vector<int>{0, 1, 3, 2, 4, 5};
  const TensorId blocks =
      ops::transpose(builder, name, ops::reshape(builder, name + ".apart", x, split), order);
  const Shape merged = {shape[0], shape[1] * block, shape[2] * block, channels};
  set_output(lowering,
             node,
             ops::reshape(builder, name + ".extents", blocks, merged),
             /*channels_last=*/true);
}

// The inverse of DepthToSpace with mode DCR.
void lower_space_to_depth(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.layouts().channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1);
  const int64_t height = shape[1] / block, width = shape[2] / block;
  const TensorId split =
      ops::reshape(builder, name + ".apart", x, {shape[0], height, block, width, block, shape[3]});
  const TensorId blocks = ops::transpose(builder, name, split, {0, 1, 3, 2, 4, 5});
  const Shape merged = {shape[0], height, width, block * block * shape[3]};
  set_output(lowering,
             node,
             ops::reshape(builder, name + ".extents", blocks, merged),
             /*channels_last=*/true);
}

constexpr NodeType kNodes[] = {
    {"DepthToSpace",
     rule_blocks<depth_to_space>,
     lower_depth_to_space,
     evaluate_blocks<depth_to_space>},
    {"SpaceToDepth",
     rule_blocks<space_to_depth>,
     lower_space_to_depth,
     evaluate_blocks<space_to_depth>},
};

}  // namespace

std::span<const NodeType> pixel_block_nodes() { return kNodes; }

}  // namespace lockstep::onnx
