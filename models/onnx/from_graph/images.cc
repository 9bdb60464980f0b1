// Layers of images. Their values are (N, C, H, W).
#include <algorithm>

#include "models/onnx/from_graph/op_rows.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pooling.h"

namespace lockstep::onnx {
namespace {

using namespace graph;
using IntegerList = std::vector<int64_t>;

IntegerList both(Extent2d extent) { return {extent.height, extent.width}; }
IntegerList pads_of(Extent2d before, Extent2d behind) {
  return {before.height, before.width, behind.height, behind.width};
}

// The file's input is the normalised image.
void write_image_normalize(GraphWriter& writer, const Op& op) {
  const std::string pixels = writer.input(
      "pixel_values", schema::TensorProto::FLOAT, op.inputs[ImageNormalizeIn::kX], {0, 3, 1, 2});
  writer.set_channels_first(op.outputs[ImageNormalizeOut::kY], pixels);
}

void write_conv2d(GraphWriter& writer, const Op& op) {
  const auto& conv = op.as<Conv2dAttributes>();
  const TensorId weight = op.inputs[Conv2dIn::kWeight], bias = op.inputs[Conv2dIn::kBias];
  Names inputs = {writer.channels_first(op.inputs[Conv2dIn::kX]), writer.plain(weight)};
  if (bias != kNoTensor) inputs.push_back(writer.plain(bias));
  const Shape& kernel = writer.shape(weight);
  const std::string y = writer.node("Conv",
                                    inputs,
                                    {{"kernel_shape", IntegerList{kernel[1], kernel[2]}},
                                     {"strides", both(conv.stride)},
                                     {"pads", pads_of(conv.padding, conv.padding)},
                                     {"dilations", both(conv.dilation)},
                                     {"group", conv.groups}});
  writer.set_channels_first(op.outputs[Conv2dOut::kY], activated(writer, y, conv.activation));
}

void write_batch_norm(GraphWriter& writer, const Op& op) {
  const auto& norm = op.as<BatchNormAttributes>();
  const TensorId x = op.inputs[BatchNormIn::kX], delta = op.inputs[BatchNormIn::kDelta];
  const bool images = writer.shape(x).rank() == 4;
  if (!images && writer.shape(x).rank() != 2)
    writer.refuse("an input that is neither images nor rows");
  const auto value = [&](TensorId id) {
    return images ? writer.channels_first(id) : writer.plain(id);
  };
  Names inputs = {value(x)};
  for (const BatchNormIn name : {BatchNormIn::kGamma,
                                 BatchNormIn::kBeta,
                                 BatchNormIn::kRunningMean,
                                 BatchNormIn::kRunningVariance})
    inputs.push_back(writer.plain(op.inputs[name]));
  std::string y = writer.node("BatchNormalization", inputs, {{"epsilon", norm.epsilon}});
  if (delta != kNoTensor) y = writer.node("Add", {y, value(delta)});
  y = activated(writer, y, norm.activation);
  if (images)
    writer.set_channels_first(op.outputs[BatchNormOut::kY], y);
  else
    writer.set(op.outputs[BatchNormOut::kY], y);
}

// As many windows as the op has, no more and no fewer: `outputs` may ask for others.
void require_whole_windows(GraphWriter& writer, const PoolAttributes& pool) {
  if (pool.outputs.height != 0 || pool.outputs.width != 0)
    writer.refuse("a number of windows other than those that fit");
}

std::vector<NodeAttribute> window_of(const PoolAttributes& pool) {
  return {{"kernel_shape", both(pool.kernel)},
          {"strides", both(pool.stride)},
          {"pads", pads_of(pool.padding, pool.padding_behind())}};
}

void write_max_pool(GraphWriter& writer, const Op& op) {
  const auto& pool = op.as<PoolAttributes>();
  require_whole_windows(writer, pool);
  std::vector<NodeAttribute> attributes = window_of(pool);
  attributes.push_back({"dilations", both(pool.dilation)});
  const std::string x = writer.channels_first(op.inputs[PoolIn::kX]);
  writer.set_channels_first(op.outputs[PoolOut::kY], writer.node("MaxPool", {x}, attributes));
}

// The means of windows along an axis of `pixels` as a matrix (windows, pixels).
std::vector<float> matrix_of_means(const PoolAxis<int64_t>& axis) {
  std::vector<float> matrix(static_cast<size_t>(axis.count * axis.size), 0.0f);
  for (int64_t window = 0; window < axis.count; ++window) {
    const auto [begin, end] = axis.pixels_of(window);
    const auto first = static_cast<size_t>(window * axis.size);
    for (int64_t pixel = begin; pixel < end; ++pixel)
      matrix[first + static_cast<size_t>(pixel)] = 1 / static_cast<float>(end - begin);
  }
  return matrix;
}

// ONNX has no adaptive pooling. Windows of equal size are an AveragePool; others are two products,
// D x A^T with the means down (OH, H) and across (OW, W).
std::string adaptive_pool(GraphWriter& writer, const std::string& x, const PoolShape& shape) {
  const auto windows = shape.windows<int64_t>();
  const PoolAxis<int64_t>&down = windows.down, &across = windows.across;
  if (down.size % down.count == 0 && across.size % across.count == 0) {
    const IntegerList extents = {down.size / down.count, across.size / across.count};
    return writer.node("AveragePool", {x}, {{"kernel_shape", extents}, {"strides", extents}});
  }
  const std::string rows = writer.numbers({down.count, down.size}, matrix_of_means(down));
  const std::string columns = writer.numbers({across.count, across.size}, matrix_of_means(across));
  const std::string transposed = writer.node("Transpose", {columns}, {{"perm", IntegerList{1, 0}}});
  return writer.node("MatMul", {rows, writer.node("MatMul", {x, transposed})});
}

void write_avg_pool(GraphWriter& writer, const Op& op) {
  const auto& pool = op.as<PoolAttributes>();
  const TensorId in = op.inputs[PoolIn::kX], out = op.outputs[PoolOut::kY];
  const std::string x = writer.channels_first(in);
  if (pool.adaptive) {
    const PoolShape shape(writer.shape(in), writer.shape(out), pool);
    return writer.set_channels_first(out, adaptive_pool(writer, x, shape));
  }
  require_whole_windows(writer, pool);
  std::vector<NodeAttribute> attributes = window_of(pool);
  attributes.push_back({"count_include_pad", int64_t{pool.count_include_pad}});
  writer.set_channels_first(out, writer.node("AveragePool", {x}, attributes));
}

void write_global_avg_pool(GraphWriter& writer, const Op& op) {
  const std::string mean =
      writer.node("GlobalAveragePool", {writer.channels_first(op.inputs[PoolIn::kX])});
  writer.set(op.outputs[PoolOut::kY], writer.node("Flatten", {mean}, {{"axis", int64_t{1}}}));
}

void write_local_response_norm(GraphWriter& writer, const Op& op) {
  const auto& norm = op.as<LocalResponseNormAttributes>();
  if (norm.size % 2 == 0) writer.refuse("a window of an even number of channels");
  const std::string x = writer.channels_first(op.inputs[LocalResponseNormIn::kX]);
  const std::string y = writer.node(
      "LRN",
      {x},
      {{"size", norm.size}, {"alpha", norm.alpha}, {"beta", norm.beta}, {"bias", norm.k}});
  writer.set_channels_first(op.outputs[LocalResponseNormOut::kY], y);
}

constexpr OpRow kRows[] = {
    {OpKind::kImageNormalize, write_image_normalize},
    {OpKind::kConv2d, write_conv2d},
    {OpKind::kBatchNorm, write_batch_norm},
    {OpKind::kMaxPool, write_max_pool},
    {OpKind::kAvgPool, write_avg_pool},
    {OpKind::kGlobalAvgPool, write_global_avg_pool},
    {OpKind::kLocalResponseNorm, write_local_response_norm},
};

}  // namespace

std::span<const OpRow> image_rows() { return kRows; }

}  // namespace lockstep::onnx
