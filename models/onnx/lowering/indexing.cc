// What indices name, and blocks of pixels.
#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {

void lower_gather(Lowering& lowering, const Node& node) {
  lowering.set(node.output(0),
               ops::gather(lowering.builder(),
                           lowering.name_of(node),
                           lowering.plain(node.input(0)),
                           lowering.plain(node.input(1)),
                           static_cast<int>(node.integer("axis", 0))));
}

// Of x as many elements along other axes as there are indices.
void lower_gather_elements(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = lowering.plain(node.input(0));
  const TensorId indices = lowering.plain(node.input(1));
  const Shape from = builder.shape(x), to = builder.shape(indices);
  const auto rank = static_cast<size_t>(from.rank());
  const int axis = axis_of(node.integer("axis", 0), rank);
  Shape part;
  for (int d = 0; d < from.rank(); ++d) part.append(d == axis ? from[d] : to[d]);
  if (part != from)
    x = ops::slice(builder,
                   name + ".part",
                   x,
                   std::vector<int64_t>(rank, 0),
                   std::vector<int64_t>(rank, 1),
                   part);
  lowering.set(node.output(0), ops::gather_elements(builder, name, x, indices, axis));
}

// By known indices (..., K): each names the first K axes behind those of the batch.
void lower_gather_nd(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const Extents& from = lowering.value(node.input(0)).extents;
  const Extents& named = lowering.value(node.input(1)).extents;
  const std::vector<int64_t> indices = constant_list(lowering, node, 1);
  const auto batch_axes = static_cast<size_t>(node.integer("batch_dims", 0));
  const auto depth = static_cast<size_t>(named.back());
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  const auto first = from.begin() + static_cast<int64_t>(batch_axes);
  const auto rest = first + static_cast<int64_t>(depth);
  const int64_t batch = product(from.begin(), first), inner = product(rest, from.end());
  const int64_t places = product(first, rest);
  if (batch * places > std::numeric_limits<int32_t>::max())
    refuse(node, fmt::format("names {} places; there are at most 2^31 here", batch * places));
  const auto count = static_cast<int64_t>(indices.size()) / std::max<int64_t>(1, named.back());
  std::vector<int32_t> flat;
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = i / (count / batch);
    for (size_t k = 0; k < depth; ++k) {
      const int64_t extent = first[static_cast<int64_t>(k)];
      const int64_t index = indices[static_cast<size_t>(i) * depth + k];
      place = place * extent + (index < 0 ? index + extent : index);
    }
    flat.push_back(static_cast<int32_t>(place));
  }
  const std::string name = lowering.name_of(node);
  const TensorId rows =
      ops::reshape(builder, name + ".rows", lowering.plain(node.input(0)), {batch * places, inner});
  const TensorId y =
      ops::gather(builder, name, rows, builder.constant(name + ".places", {count}, flat), 0);
  lowering.set(
      node.output(0),
      ops::reshape(builder, name + ".extents", y, shape_of(lowering.value(node.output(0)))));
}

void lower_tile(Lowering& lowering, const Node& node) {
  const std::vector<int64_t> repeats = constant_list(lowering, node, 1);
  lowering.set(
      node.output(0),
      ops::tile(
          lowering.builder(), lowering.name_of(node), lowering.plain(node.input(0)), repeats));
}

// (N, H, W, channels of b x b blocks) -> (N, H b, W b, channels).
void lower_depth_to_space(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1), channels = shape[3] / (block * block);
  const bool channels_first = node.text("mode", "DCR") == "CRD";
  const Shape apart = channels_first ? Shape{shape[0], shape[1], shape[2], channels, block, block}
                                     : Shape{shape[0], shape[1], shape[2], block, block, channels};
  const std::vector<int> order =
      channels_first ? std::vector<int>{0, 1, 4, 2, 5, 3} : std::vector<int>{0, 1, 3, 2, 4, 5};
  const TensorId blocks =
      ops::transpose(builder, name, ops::reshape(builder, name + ".apart", x, apart), order);
  const Shape together = {shape[0], shape[1] * block, shape[2] * block, channels};
  lowering.set(node.output(0),
               ops::reshape(builder, name + ".extents", blocks, together),
               /*channels_last=*/true);
}

// The other way.
void lower_space_to_depth(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1);
  const int64_t height = shape[1] / block, width = shape[2] / block;
  const TensorId apart =
      ops::reshape(builder, name + ".apart", x, {shape[0], height, block, width, block, shape[3]});
  const TensorId blocks = ops::transpose(builder, name, apart, {0, 1, 3, 2, 4, 5});
  const Shape together = {shape[0], height, width, block * block * shape[3]};
  lowering.set(node.output(0),
               ops::reshape(builder, name + ".extents", blocks, together),
               /*channels_last=*/true);
}

// Zero on one side of a diagonal.
void lower_trilu(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const Extents& extents = lowering.value(node.output(0)).extents;
  const int64_t rows = extents[extents.size() - 2], columns = extents.back();
  const int64_t diagonal = node.input(1) < 0 ? 0 : constant_list(lowering, node, 1)[0];
  const bool upper = node.integer("upper", 1) != 0;
  std::vector<float> kept;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      kept.push_back((upper ? c - r >= diagonal : c - r <= diagonal) ? 1.0f : 0.0f);
  const std::string name = lowering.name_of(node);
  const TensorId mask = builder.constant(name + ".kept", {rows, columns}, kept);
  PointwiseProgram program;
  const int condition = program.input(0), x = program.input(1);
  program.append(PointwiseFunction::kWhere, condition, x, program.constant(0));
  lowering.set(node.output(0),
               ops::pointwise(builder, name, {mask, lowering.plain(node.input(0))}, program));
}

}  // namespace lockstep::onnx
