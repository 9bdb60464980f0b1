#include "runtime/cuda/plan/roofline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/graph/ops/conv_transpose2d.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/schema.h"

namespace lockstep::cuda {
namespace {

// Whether the op's operations run on tensor cores.
bool multiplies_matrices(graph::OpKind kind) {
  switch (kind) {
    case graph::OpKind::kLoraAdd:
    case graph::OpKind::kLoraAddBackward:
    case graph::OpKind::kAttention:
    case graph::OpKind::kAttentionBackward:
    case graph::OpKind::kCachedAttention:
    case graph::OpKind::kBatchedMatmul:
    case graph::OpKind::kConvTranspose2d:
    case graph::OpKind::kConvTranspose2dBackward:
    case graph::OpKind::kRecurrent:
    case graph::OpKind::kRecurrentBackward: return true;
    default: return false;
  }
}

class Prediction {
 public:
  Prediction(const graph::Graph& graph, const GpuModel& model, bool tf32)
      : graph_(graph), model_(model), tf32_(tf32) {}

  Roofline run() {
    for (const graph::Op& op : graph_.ops) add(op);
    Roofline roofline;
    roofline.seconds = seconds_;
    for (auto& [extents, product] : products_) roofline.products.push_back(std::move(product));
    std::ranges::stable_sort(roofline.products, [](const auto& a, const auto& b) {
      return a.total_seconds() > b.total_seconds();
    });
    return roofline;
  }

 private:
  double bytes(TensorId id) const { return static_cast<double>(graph_[id].bytes()); }
  double element(TensorId id) const { return static_cast<double>(size_of(graph_[id].dtype)); }

  double seconds_of(double flops, double bytes, double rate) const {
    return std::max(flops / rate, bytes / (model_.gbytes_per_s * 1e9));
  }

  // The product of two tensors of the type of `input`.
  void add_product(PredictedProduct product, TensorId input, double bytes) {
    const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                         static_cast<double>(product.k * product.groups);
    product.seconds = seconds_of(flops, bytes, peak_flops(model_, graph_[input].dtype, tf32_));
    seconds_ += product.seconds;
    const auto [at, fresh] = products_.try_emplace(
        std::tuple(
            product.convolution, product.m, product.n, product.k, product.groups, product.seconds),
        product);
    ++at->second.count;
  }

  // A product (m, k) x (k, n) whose inputs have the type of `input`.
  void add_matrices(
      const graph::Op& op, int64_t m, int64_t n, int64_t k, TensorId input, double output_element) {
    const double inputs = static_cast<double>(m + n) * static_cast<double>(k) * element(input);
    const double output = static_cast<double>(m) * static_cast<double>(n) * output_element;
    add_product({.name = op.name, .m = m, .n = n, .k = k}, input, inputs + output);
  }

  void add_backward(const graph::Op& op,
                    const graph::LinearShape& s,
                    TensorId input,
                    TensorId d_x,
                    TensorId d_weight) {
    if (d_x != kNoTensor) add_matrices(op, s.rows, s.inputs, s.outputs, input, element(d_x));
    if (d_weight != kNoTensor)
      add_matrices(op, s.outputs, s.inputs, s.rows, input, element(d_weight));
  }

  void add_linear_cross_entropy(const graph::Op& op) {
    const TensorId x = op.inputs[graph::LinearCrossEntropyIn::kX];
    const TensorId weight = op.inputs[graph::LinearCrossEntropyIn::kWeight];
    const TensorId d_x = op.outputs[graph::LinearCrossEntropyOut::kDX];
    const TensorId d_weight = op.outputs[graph::LinearCrossEntropyOut::kDWeight];
    const auto shape = graph::LinearShape::of(graph_.shape(x), graph_.shape(weight));
    const int64_t chunk = std::min(op.as<graph::LinearCrossEntropyAttributes>().rows, shape.rows);
    const bool trains = op.outputs.size() > 2;
    for (int64_t row = 0; row < shape.rows; row += chunk) {
      const graph::LinearShape part = {
          std::min(chunk, shape.rows - row), shape.inputs, shape.outputs};
      add_matrices(op, part.rows, part.outputs, part.inputs, x, element(x));
      if (trains) add_backward(op, part, x, d_x, d_weight);
    }
    // The loss reads the logits and writes their gradient.
    const auto logits = static_cast<double>(shape.rows) * static_cast<double>(shape.outputs);
    seconds_ += seconds_of(0, (trains ? 2 : 1) * logits * element(x), 1);
  }

  // y (pixels, O) = x W^T, or a gradient with the operands' places changed.
  void add_conv2d(const graph::Op& op,
                  const graph::Conv2dShape& s,
                  TensorId input,
                  int64_t m,
                  int64_t n,
                  int64_t k,
                  std::initializer_list<TensorId> tensors) {
    double moved = 0;
    for (const TensorId id : tensors) moved += bytes(id);
    add_product({.name = op.name,
                 .m = m,
                 .n = n,
                 .k = k,
                 .groups = s.groups,
                 .convolution = !s.is_linear()},
                input,
                moved);
  }

  void add(const graph::Op& op) {
    const graph::OpCall call(graph_, op);
    switch (op.kind) {
      case graph::OpKind::kLinear: {
        const TensorId x = op.inputs[graph::LinearIn::kX], y = op.outputs[graph::LinearOut::kY];
        const graph::LinearShape s = graph::LinearForward<std::byte>{call}.shape;
        return add_matrices(op, s.rows, s.outputs, s.inputs, x, element(y));
      }
      case graph::OpKind::kLinearBackward: {
        return add_backward(op,
                            graph::LinearBackward<std::byte>{call}.shape,
                            op.inputs[graph::LinearBackwardIn::kDY],
                            op.outputs[graph::LinearBackwardOut::kDX],
                            op.outputs[graph::LinearBackwardOut::kDWeight]);
      }
      case graph::OpKind::kLinearCrossEntropy: return add_linear_cross_entropy(op);
      case graph::OpKind::kConv2d: {
        const TensorId x = op.inputs[graph::Conv2dIn::kX],
                       weight = op.inputs[graph::Conv2dIn::kWeight];
        const TensorId y = op.outputs[graph::Conv2dOut::kY];
        const graph::Conv2dShape s = graph::conv2d_shape(call);
        return add_conv2d(op, s, x, s.out_pixels(), s.group_outputs(), s.patch(), {x, weight, y});
      }
      case graph::OpKind::kConv2dBackward: {
        const TensorId d_y = op.inputs[graph::Conv2dBackwardIn::kDY];
        const TensorId x = op.inputs[graph::Conv2dBackwardIn::kX];
        const TensorId weight = op.inputs[graph::Conv2dBackwardIn::kWeight];
        const TensorId d_x = op.outputs[graph::Conv2dBackwardOut::kDX];
        const TensorId d_weight = op.outputs[graph::Conv2dBackwardOut::kDWeight];
        const graph::Conv2dShape s = graph::conv2d_shape(call);
        if (d_x != kNoTensor)
          add_conv2d(op, s, d_y, s.out_pixels(), s.patch(), s.group_outputs(), {d_y, weight, d_x});
        if (d_weight != kNoTensor)
          add_conv2d(op, s, d_y, s.group_outputs(), s.patch(), s.out_pixels(), {d_y, x, d_weight});
        return;
      }
      case graph::OpKind::kReshape: return;
      case graph::OpKind::kEmbedding:  // reads only the rows of its tokens
        seconds_ += seconds_of(0, 2 * bytes(op.outputs[graph::EmbeddingOut::kY]), 1);
        return;
      case graph::OpKind::kEmbeddingBackward:
        seconds_ += seconds_of(0, 2 * bytes(op.inputs[graph::EmbeddingBackwardIn::kDY]), 1);
        return;
      default: break;
    }
    const auto flops = static_cast<double>(graph::schema_of(op.kind).flops(graph_, op));
    DType type = DType::kF32;
    if (multiplies_matrices(op.kind)) type = graph_[op.inputs.first()].dtype;
    const bool tf32 = tf32_ && multiplies_matrices(op.kind);
    seconds_ += seconds_of(
        flops, static_cast<double>(graph::bytes_moved(graph_, op)), peak_flops(model_, type, tf32));
  }

  const graph::Graph& graph_;
  const GpuModel& model_;
  const bool tf32_;
  double seconds_ = 0;
  std::map<std::tuple<bool, int64_t, int64_t, int64_t, int64_t, double>, PredictedProduct>
      products_;
};

}  // namespace

Roofline predict_graph(const graph::Graph& graph, const GpuModel& model, bool tf32) {
  return Prediction(graph, model, tf32).run();
}

}  // namespace lockstep::cuda
