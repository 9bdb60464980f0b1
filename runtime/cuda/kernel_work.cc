#include "runtime/cuda/kernel_work.h"

#include "runtime/cuda/plan/attention.h"
#include "runtime/cuda/plan/fused_gelu.h"
#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/schema.h"

namespace lockstep::cuda {
namespace {

using graph::OpKind;

class Counter {
 public:
  Counter(const graph::Graph& graph, const graph::Op& op, const KernelGpu& gpu)
      : graph_(graph), op_(op), gpu_(gpu), call_(graph, op) {
    work_.launches = 1;
    work_.bytes = static_cast<double>(graph::bytes_moved(graph, op));
  }

  KernelWork count() && {
    switch (op_.kind) {
      case OpKind::kReshape: return {};
      case OpKind::kGatherLanes: return {};  // an exchange of the executor
      case OpKind::kLinear: linear(); break;
      case OpKind::kLinearBackward: linear_backward(); break;
      case OpKind::kLinearCrossEntropy:
      case OpKind::kSequenceLogProb:
      case OpKind::kSequenceLogProbBackward: linear_cross_entropy(); break;
      case OpKind::kConv2d:
      case OpKind::kConvTranspose2d: multiply(type_of(graph::InputName::at(0))); break;
      case OpKind::kConv2dBackward: conv2d_backward(); break;
      case OpKind::kConvTranspose2dBackward:
        launch(1);
        multiply(type_of_first());
        break;
      case OpKind::kLoraAdd:
        launch(3);
        multiply(type_of_first());
        break;
      case OpKind::kLoraAddBackward:
        launch(5);
        multiply(type_of_first());
        break;
      case OpKind::kBatchedMatmul: multiply(type_of_first()); break;
      case OpKind::kRecurrent:
      case OpKind::kRecurrentBackward: multiply(type_of_first()); break;
      case OpKind::kCachedAttention: fma(); break;
      case OpKind::kAttention: attention(); break;
      case OpKind::kAttentionBackward: attention_backward(); break;
      case OpKind::kEmbedding: embedding(); break;
      case OpKind::kEmbeddingBackward: embedding_backward(); break;
      case OpKind::kRotary:
      case OpKind::kRotaryBackward: launch(2); break;  // frequencies, then tables of angles
      case OpKind::kQkNorm: launch(2); break;          // q, k and the copy of v
      case OpKind::kLayerNormBackward:
      case OpKind::kRmsNormBackward: row_norm_backward(); break;
      case OpKind::kQkNormBackward: launch(4); break;
      case OpKind::kBatchNorm: batch_norm(); break;
      case OpKind::kBatchNormBackward: batch_norm_backward(); break;
      case OpKind::kBatchStatistics: launch(1); break;
      case OpKind::kBatchNormSums: launch(3); break;
      case OpKind::kBatchNormInputGradient: launch(1); break;
      case OpKind::kSoftmaxCrossEntropy: softmax_cross_entropy(); break;
      case OpKind::kContrastive: launch(2); break;
      case OpKind::kCtcLoss: launch(1); break;
      default:
        if (graph::schema_of(op_.kind).is_loss) sum_loss_rows(rows_of_prediction());
        break;
    }
    return work_;
  }

 private:
  double bytes(TensorId id) const {
    return id == kNoTensor ? 0 : static_cast<double>(graph_[id].bytes());
  }
  DType type_of(graph::InputName input) const { return call_.input_dtype(input); }
  DType type_of_first() const { return type_of(graph::InputName::at(0)); }

  // Further launches, which read and write so many bytes.
  void launch(int64_t launches, double bytes = 0) {
    work_.launches += launches;
    work_.bytes += bytes;
  }

  double flops() const {
    return static_cast<double>(graph::schema_of(op_.kind).flops(graph_, op_));
  }
  void fma() { work_.fma_flops += flops(); }
  // Products of operands of this type, by a library.
  void multiply(DType type) {
    (type != DType::kF32 || gpu_.tf32 ? work_.tensor_flops : work_.fma_flops) += flops();
  }

  // Partial sums of the columns of a matrix, and their sum.
  void column_sum(int64_t rows, int64_t columns, double matrix_bytes) {
    launch(2, matrix_bytes + 2 * static_cast<double>(column_sum_workspace_bytes(rows, columns)));
  }

  // Whether GELU or its derivative needs no kernel.
  bool fuses(Activation activation, DType type) const {
    return activation == Activation::kNone ||
           (activation == Activation::kGeluTanh && fuses_gelu(gpu_.capability, type));
  }

  void linear() {
    const graph::LinearForward<std::byte> forward{call_};
    const DType type = type_of(graph::LinearIn::kX);
    multiply(type);
    const bool biased = call_.has_input(graph::LinearIn::kBias);
    const bool fused =
        biased && (forward.activation == Activation::kRelu || fuses(forward.activation, type));
    if (forward.activation != Activation::kNone && !fused)
      launch(1, 2 * bytes(op_.outputs[graph::LinearOut::kY]));
  }

  void linear_backward() {
    using Out = graph::LinearBackwardOut;
    const graph::LinearBackward<std::byte> backward{call_};
    const DType type = type_of(graph::LinearBackwardIn::kDY);
    multiply(type);
    const double d_y = bytes(op_.inputs[graph::LinearBackwardIn::kDY]);
    const bool d_weight = call_.has_output(Out::kDWeight), d_x = call_.has_output(Out::kDX);
    work_.launches = d_x + d_weight;
    if (d_x && d_weight) work_.bytes += d_y;  // both products read it
    if (d_x && !fuses(backward.input_activation, type)) launch(1, 2 * bytes(op_.outputs[Out::kDX]));
    const bool with_weight = d_weight && !backward.accumulate_bias;  // in the product's epilogue
    if (call_.has_output(Out::kDBias) && !with_weight)
      column_sum(backward.shape.rows, backward.shape.outputs, d_y);
  }

  void linear_cross_entropy() {
    using Out = graph::LinearCrossEntropyOut;
    const graph::LinearCrossEntropy<std::byte> loss{call_};
    const DType type = type_of(graph::LinearCrossEntropyIn::kX);
    multiply(type);
    const int64_t chunks = loss.chunks();
    const bool d_x = call_.has_output(Out::kDX), d_weight = call_.has_output(Out::kDWeight);
    const auto logits = static_cast<double>(loss.shape.rows * loss.attributes.stride) *
                        static_cast<double>(size_of(type));
    // Each chunk reads the weights, and adds to their gradient.
    const double weight = bytes(op_.inputs[graph::LinearCrossEntropyIn::kWeight]);
    work_.launches = chunks * (2 + d_x + d_weight);
    sum_loss_rows(loss.shape.rows);
    work_.bytes +=
        static_cast<double>(chunks - 1) * (1 + d_x) * weight +
        (d_weight ? static_cast<double>(chunks - 1) * 2 * bytes(op_.outputs[Out::kDWeight]) : 0);
    // The product writes the logits, the loss reads them and writes their gradient, which both
    // other products read.
    work_.bytes += (2 + (d_x || d_weight) + d_x + d_weight) * logits +
                   reread_logits(loss.shape.rows, loss.shape.outputs, type);
    if (call_.has_output(Out::kDBias)) launch(2 * chunks, logits);
  }

  void conv2d_backward() {
    using Out = graph::Conv2dBackwardOut;
    const DType type = type_of(graph::Conv2dBackwardIn::kDY);
    multiply(type);
    const graph::Conv2dShape shape = graph::Conv2dBackward<std::byte>{call_}.shape;
    const double d_y = bytes(op_.inputs[graph::Conv2dBackwardIn::kDY]);
    const bool d_weight = call_.has_output(Out::kDWeight), d_x = call_.has_output(Out::kDX);
    work_.launches = d_x + d_weight;
    if (d_x && d_weight) work_.bytes += d_y;
    if (d_weight && type != DType::kF32 && !shape.is_linear() && shape.channels % 8 != 0)
      launch(1, 1.5 * bytes(op_.outputs[Out::kDWeight]));  // 16-bit gradients, widened
    if (call_.has_output(Out::kDBias)) column_sum(shape.out_pixels(), shape.outputs, d_y);
  }

  // On cuDNN, or on the native kernels: on tensor cores like products.
  void attention() {
    multiply(type_of(graph::AttentionIn::kQkv));
    if (cudnn_attention_supports(call_) && attention_is_padded(call_)) launch(2);  // of padding
  }

  void attention_backward() {
    const graph::AttentionBackward<std::byte> backward{call_};
    multiply(type_of(graph::AttentionBackwardIn::kQkv));
    if (!cudnn_attention_supports(call_)) {
      // Gradients of queries; gradients of keys and values, of large heads apart. Each reads
      // everything.
      constexpr int64_t kJoined = 128;  // the largest heads
      return launch(backward.shape.head_size <= kJoined ? 1 : 2,
                    bytes(op_.inputs[graph::AttentionBackwardIn::kQkv]) +
                        bytes(op_.inputs[graph::AttentionBackwardIn::kDY]));
    }
    work_.launches = backward.shape.batch / cudnn_attention_part(backward.shape).batch;
    if (attention_is_padded(call_)) work_.launches = 2 * work_.launches + 1;
  }

  void embedding() {  // reads only the rows of its tokens
    work_.bytes = 2 * bytes(op_.outputs[graph::EmbeddingOut::kY]);
  }

  void embedding_backward() {
    using Out = graph::EmbeddingBackwardOut;
    const graph::EmbeddingBackward<float> backward{call_};
    const double d_y = bytes(op_.inputs[graph::EmbeddingBackwardIn::kDY]);
    work_ = {};
    if (call_.has_output(Out::kDToken)) {
      constexpr int64_t kSort = 5;  // of CUB: a histogram, and passes over the ids
      launch(kSort + 2, 2 * d_y);
      if (!backward.accumulate_token) launch(1, bytes(op_.outputs[Out::kDToken]));
    }
    if (call_.has_output(Out::kDPosition)) launch(1, d_y + bytes(op_.outputs[Out::kDPosition]));
  }

  // A wave of blocks writes sums over rows, which one more kernel adds up.
  void row_norm_backward() {
    const graph::RowNormBackward<float> backward{call_};
    launch(1, 2 * static_cast<double>(row_norm_backward_workspace(backward)));
  }

  void batch_norm() {
    if (!call_.has_output(graph::BatchNormOut::kMean)) return;
    if (call_.has_input(graph::BatchNormIn::kLaneStatistics)) return launch(1);
    launch(2,
           bytes(op_.inputs[graph::BatchNormIn::kX]) +
               2 * static_cast<double>(batch_statistics_workspace(call_)));
  }

  // Sums, their finish, and the gradient of x, for which x is read again, and the gradient of y
  // that the first kernel has summed and masked.
  void batch_norm_backward() {
    using In = graph::BatchNormBackwardIn;
    const TensorId summed = op_.outputs[graph::BatchNormBackwardOut::kDDelta];
    double again = bytes(op_.inputs[In::kX]);
    if (summed != kNoTensor) {
      again += bytes(summed);
    } else {
      for (const auto input : {In::kDY, In::kDY2, In::kY, In::kMask})
        if (call_.has_input(input)) again += bytes(op_.inputs[input]);
    }
    launch(2, again + 2 * static_cast<double>(batch_norm_sums_workspace(call_)));
  }

  // Each logit is read once, and its gradient written over it. The rest of a very long row is read
  // again.
  int64_t rows_of_prediction() const {
    return call_.input_shape(graph::LossIn::kPrediction).rows();
  }
  // One block reads the results of few rows, or the sums of many blocks.
  void sum_loss_rows(int64_t rows) { launch(loss_row_parts(rows) == 1 ? 1 : 2); }

  void softmax_cross_entropy() {
    sum_loss_rows(rows_of_prediction());
    work_.bytes += reread_logits(graph::SoftmaxCrossEntropy<std::byte>{call_}.rows,
                                 graph::SoftmaxCrossEntropy<std::byte>{call_}.classes,
                                 type_of(graph::LossIn::kPrediction));
  }
  static double reread_logits(int64_t rows, int64_t columns, DType type) {
    const auto more = std::max<int64_t>(0, columns - max_kept_columns(size_of(type)));
    return static_cast<double>(rows * more) * static_cast<double>(size_of(type));
  }

  const graph::Graph& graph_;
  const graph::Op& op_;
  const KernelGpu gpu_;
  const graph::OpCall call_;
  KernelWork work_;
};

}  // namespace

KernelWork KernelWork::operator*(int64_t times) const {
  const auto factor = static_cast<double>(times);
  return {launches * times, bytes * factor, tensor_flops * factor, fma_flops * factor};
}

KernelWork kernel_work(const graph::Graph& graph, const graph::Op& op, const KernelGpu& gpu) {
  return Counter(graph, op, gpu).count();
}

}  // namespace lockstep::cuda
