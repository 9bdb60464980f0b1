#include "launcher/forecast/op_work.h"

#include <algorithm>
#include <cmath>

#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/conv_transpose2d.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/schema.h"
#include "runtime/plan/program_plan.h"

namespace lockstep::forecast {
namespace {

using graph::OpKind;

// Whether operations that are not listed as products run on the units for products.
bool multiplies_matrices(OpKind kind) {
  switch (kind) {
    case OpKind::kLoraAdd:
    case OpKind::kLoraAddBackward:
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
    case OpKind::kCachedAttention:
    case OpKind::kBatchedMatmul:
    case OpKind::kConvTranspose2d:
    case OpKind::kConvTranspose2dBackward:
    case OpKind::kRecurrent:
    case OpKind::kRecurrentBackward: return true;
    default: return false;
  }
}

class Work {
 public:
  Work(const graph::Graph& graph, const graph::Op& op, double target_share)
      : graph_(graph), op_(op), call_(graph, op), target_share_(target_share) {
    work_.kind = op.kind;
    work_.name = op.name;
    work_.type = DType::kF32;
  }

  OpWork find() && {
    switch (op_.kind) {
      case OpKind::kLinear: linear(); break;
      case OpKind::kLinearBackward: linear_backward(); break;
      case OpKind::kLinearCrossEntropy:
      case OpKind::kSequenceLogProb:
      case OpKind::kSequenceLogProbBackward: linear_cross_entropy(); break;
      case OpKind::kConv2d: conv2d(); break;
      case OpKind::kConv2dBackward: conv2d_backward(); break;
      case OpKind::kReshape: break;
      case OpKind::kEmbedding:  // reads only the rows of its tokens
        work_.rest_bytes = 2 * bytes(op_.outputs[graph::EmbeddingOut::kY]);
        break;
      case OpKind::kEmbeddingBackward:
        work_.rest_bytes = 2 * bytes(op_.inputs[graph::EmbeddingBackwardIn::kDY]);
        break;
      default: rest();
    }
    return std::move(work_);
  }

 private:
  double bytes(TensorId id) const { return static_cast<double>(graph_[id].bytes()); }
  double element(TensorId id) const { return static_cast<double>(size_of(graph_[id].dtype)); }

  // A product (m, k) x (k, n) whose operands have the op's type.
  void add_matrices(int64_t m, int64_t n, int64_t k, double output_element, int64_t repeats = 1) {
    const double inputs = static_cast<double>(m + n) * static_cast<double>(k) *
                          static_cast<double>(size_of(work_.type));
    const double output = static_cast<double>(m) * static_cast<double>(n) * output_element;
    work_.products.push_back(
        {.m = m, .n = n, .k = k, .bytes = inputs + output, .repeats = repeats});
  }

  void add_gradients(const graph::LinearShape& s,
                     TensorId d_x,
                     TensorId d_weight,
                     int64_t repeats = 1) {
    if (d_x != kNoTensor) add_matrices(s.rows, s.inputs, s.outputs, element(d_x), repeats);
    if (d_weight != kNoTensor)
      add_matrices(s.outputs, s.inputs, s.rows, element(d_weight), repeats);
  }

  void linear() {
    const TensorId x = op_.inputs[graph::LinearIn::kX];
    const graph::LinearShape s = graph::LinearForward<std::byte>{call_}.shape;
    work_.type = graph_[x].dtype;
    work_.extents = {s.rows, s.outputs, s.inputs};
    add_matrices(s.rows, s.outputs, s.inputs, element(op_.outputs[graph::LinearOut::kY]));
  }

  void linear_backward() {
    const graph::LinearShape s = graph::LinearBackward<std::byte>{call_}.shape;
    const TensorId d_x = op_.outputs[graph::LinearBackwardOut::kDX];
    const TensorId d_weight = op_.outputs[graph::LinearBackwardOut::kDWeight];
    work_.type = graph_[op_.inputs[graph::LinearBackwardIn::kDY]].dtype;
    work_.extents = {s.rows, s.outputs, s.inputs, d_x != kNoTensor, d_weight != kNoTensor};
    add_gradients(s, d_x, d_weight);
  }

  void linear_cross_entropy() {
    const TensorId x = op_.inputs[graph::LinearCrossEntropyIn::kX];
    const TensorId weight = op_.inputs[graph::LinearCrossEntropyIn::kWeight];
    const bool trains = op_.outputs.size() > 2;
    const TensorId d_x = trains ? op_.outputs[graph::LinearCrossEntropyOut::kDX] : kNoTensor;
    const TensorId d_weight =
        trains ? op_.outputs[graph::LinearCrossEntropyOut::kDWeight] : kNoTensor;
    auto s = graph::LinearShape::of(graph_.shape(x), graph_.shape(weight));
    s.rows = std::max<int64_t>(1, std::llround(target_share_ * static_cast<double>(s.rows)));
    const int64_t chunk = std::min(op_.as<graph::LinearCrossEntropyAttributes>().rows, s.rows);
    work_.type = graph_[x].dtype;
    work_.extents = {s.rows, s.outputs, s.inputs, d_x != kNoTensor, d_weight != kNoTensor};
    const auto add_part = [&](int64_t rows, int64_t repeats) {
      if (rows == 0 || repeats == 0) return;
      add_matrices(rows, s.outputs, s.inputs, element(x), repeats);
      add_gradients({rows, s.inputs, s.outputs}, d_x, d_weight, repeats);
    };
    add_part(chunk, s.rows / chunk);
    add_part(s.rows % chunk, 1);
    // The loss reads the logits and writes their gradient.
    const auto logits = static_cast<double>(s.rows) * static_cast<double>(s.outputs);
    work_.rest_bytes = (trains ? 2 : 1) * logits * element(x);
  }

  // y (pixels, O) = x W^T, or a gradient with the operands' places changed.
  void add_conv2d(const graph::Conv2dShape& s,
                  int64_t m,
                  int64_t n,
                  int64_t k,
                  std::initializer_list<TensorId> tensors) {
    double moved = 0;
    for (const TensorId id : tensors) moved += bytes(id);
    work_.products.push_back({.m = m,
                              .n = n,
                              .k = k,
                              .groups = s.groups,
                              .convolution = !s.is_linear(),
                              .bytes = moved});
  }

  void set_window(const graph::Conv2dShape& s) {
    work_.extents = {s.out_pixels(),
                     s.group_outputs(),
                     s.group_channels(),
                     s.groups,
                     s.kernel_h * s.kernel_w,
                     s.stride_h * s.stride_w};
  }

  void conv2d() {
    const TensorId x = op_.inputs[graph::Conv2dIn::kX];
    const graph::Conv2dShape s = graph::conv2d_shape(call_);
    work_.type = graph_[x].dtype;
    set_window(s);
    add_conv2d(s,
               s.out_pixels(),
               s.group_outputs(),
               s.patch(),
               {x, op_.inputs[graph::Conv2dIn::kWeight], op_.outputs[graph::Conv2dOut::kY]});
  }

  void conv2d_backward() {
    using In = graph::Conv2dBackwardIn;
    const TensorId d_y = op_.inputs[In::kDY], x = op_.inputs[In::kX];
    const TensorId weight = op_.inputs[In::kWeight];
    const TensorId d_x = op_.outputs[graph::Conv2dBackwardOut::kDX];
    const TensorId d_weight = op_.outputs[graph::Conv2dBackwardOut::kDWeight];
    const graph::Conv2dShape s = graph::conv2d_shape(call_);
    work_.type = graph_[d_y].dtype;
    set_window(s);
    work_.extents.insert(work_.extents.end(), {d_x != kNoTensor, d_weight != kNoTensor});
    if (d_x != kNoTensor)
      add_conv2d(s, s.out_pixels(), s.patch(), s.group_outputs(), {d_y, weight, d_x});
    if (d_weight != kNoTensor)
      add_conv2d(s, s.group_outputs(), s.patch(), s.out_pixels(), {d_y, x, d_weight});
  }

  void rest() {
    work_.rest_flops = static_cast<double>(graph::schema_of(op_.kind).flops(graph_, op_));
    work_.rest_bytes = static_cast<double>(graph::bytes_moved(graph_, op_));
    work_.rest_multiplies = multiplies_matrices(op_.kind);
    work_.type = graph_[op_.inputs.first()].dtype;
    if (op_.kind == OpKind::kActivation || op_.kind == OpKind::kActivationBackward)
      work_.function = name_of(op_.as<graph::ActivationAttributes>().activation);
    const bool forward = op_.kind == OpKind::kAttention;
    if (!forward && op_.kind != OpKind::kAttentionBackward) return;
    const graph::AttentionShape s = forward ? graph::AttentionForward<std::byte>{call_}.shape
                                            : graph::AttentionBackward<std::byte>{call_}.shape;
    if (!forward) work_.type = graph_[op_.inputs[graph::AttentionBackwardIn::kDY]].dtype;
    const bool drops = op_.as<graph::AttentionAttributes>().dropout != 0;
    work_.extents = {s.batch * s.heads, s.time, s.head_size, s.heads / s.kv_heads, s.causal, drops};
  }

  const graph::Graph& graph_;
  const graph::Op& op_;
  const graph::OpCall call_;
  const double target_share_;
  OpWork work_;
};

}  // namespace

double OpWork::flops() const {
  double flops = rest_flops;
  for (const Product& product : products)
    flops += product.flops() * static_cast<double>(product.repeats);
  return flops;
}

double OpWork::bytes() const {
  double bytes = rest_bytes;
  for (const Product& product : products)
    bytes += product.bytes * static_cast<double>(product.repeats);
  return bytes;
}

bool OpWork::same_as(const OpWork& other) const {
  return kind == other.kind && type == other.type && products == other.products &&
         function == other.function && extents == other.extents && rest_flops == other.rest_flops &&
         rest_bytes == other.rest_bytes && lanes == other.lanes && kernels == other.kernels;
}

std::string OpWork::measured_name() const {
  const std::string name = graph::name_of(kind);
  return function.empty() ? name : name + "." + function;
}

GraphWork work_of(const graph::Graph& graph, const WorkOptions& options) {
  GraphWork all;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const bool joint =
        options.joint != nullptr && plan::runs_jointly(graph, *options.joint, i, options.lanes);
    const graph::Graph& of = joint ? *options.joint : graph;
    OpWork work = Work(of, of.ops[i], options.target_share).find();
    if (joint) work.lanes = options.lanes;
    if (options.gpu) work.kernels = cuda::kernel_work(of, of.ops[i], *options.gpu);
    const auto known =
        std::ranges::find_if(all.works, [&](const OpWork& other) { return other.same_as(work); });
    all.of_op.push_back(static_cast<size_t>(known - all.works.begin()));
    if (known == all.works.end()) all.works.push_back(std::move(work));
    ++all.works[all.of_op.back()].count;
  }
  return all;
}

}  // namespace lockstep::forecast
