// The products of matmul/ and the loss of softmax_cross_entropy.cc, chunk by chunk of rows. With
// the products of gemm.h, a weight's gradient is one chain of sums over all rows, as it is without
// chunks.
#include "runtime/graph/ops/linear_cross_entropy.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/threads.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/linear_kernels.h"
#include "runtime/cpu/ops/softmax_cross_entropy.h"

namespace lockstep::cpu {
namespace {

template <typename T>
using Op = graph::LinearCrossEntropy<T>;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Offsets of the parts of the workspace, in bytes; the logits come first.
struct Workspace {
  size_t bias;      // in floats, if it is stored in bfloat16
  size_t results;   // LossRow for each row
  size_t counted;   // indices of the counted rows, then their targets
  size_t scales;    // gradient scales of the counted rows, if there are d_sums
  size_t products;  // workspace of the products
};

template <typename T>
Workspace workspace_of(const Op<T>& op) {
  const int64_t rows = op.shape.rows;
  const bool widens = std::is_same_v<T, BFloat16>;
  Workspace at = {};
  at.bias = aligned(static_cast<size_t>(op.chunk_rows() * op.attributes.stride) * sizeof(float));
  at.results =
      at.bias + (widens ? aligned(static_cast<size_t>(op.shape.outputs) * sizeof(float)) : 0);
  at.counted = at.results + aligned(loss_workspace_bytes(rows));
  at.scales = at.counted + aligned(2 * static_cast<size_t>(rows) * sizeof(int32_t));
  const bool has_sums = op.call.has_input(graph::LinearCrossEntropyIn::kDSums);
  at.products = at.scales + (has_sums ? aligned(static_cast<size_t>(rows) * sizeof(float)) : 0);
  return at;
}

int64_t products_bytes(const LinearKernels& kernels, const graph::LinearShape& shape) {
  return kernels.workspace_bytes(shape, compute_threads());
}
int64_t products_bytes(const HalfLinearKernels& kernels, const graph::LinearShape& shape) {
  return kernels.loss_workspace_bytes(shape, compute_threads());
}

template <typename T, const auto& kKernels>
size_t workspace_bytes(const Op<T>& op) {
  // max over all chunk sizes: the number of counted rows is known only when the op runs
  int64_t max_bytes = 0;
  for (int64_t rows = 1; rows <= op.chunk_rows(); ++rows)
    max_bytes =
        std::max(max_bytes, products_bytes(kKernels, {rows, op.shape.inputs, op.shape.outputs}));
  return workspace_of(op).products + static_cast<size_t>(max_bytes);
}

template <const LinearKernels& kOfFloats, const HalfLinearKernels& kOfHalves>
size_t workspace_bytes(const graph::OpCall& call) {
  return stores_bf16(call) ? workspace_bytes<BFloat16, kOfHalves>(Op<BFloat16>{call})
                           : workspace_bytes<float, kOfFloats>(Op<float>{call});
}

// Leaves rows without a loss, such as the unmasked tokens of a masked language model, out of the
// products. No sum changes. Meanwhile, the other rows are stored contiguously.
template <typename T>
class CountedRows {
 public:
  // In training, restricts `op` to the counted rows; their x is copied into the memory of d_x.
  CountedRows(Op<T>& op, const graph::LaneContext& lane, int32_t* memory)
      : all_(op.shape.rows), inputs_(op.shape.inputs), rows_(memory) {
    if (op.d_x == nullptr) return;
    const int64_t valid_rows = op.is_loss ? std::min(all_, lane.valid_rows) : all_;
    for (int64_t row = 0; row < valid_rows; ++row) {
      if (op.targets[row] >= 0) rows_[count_++] = static_cast<int32_t>(row);
    }
    if (count_ == all_) return;
    d_x_ = op.d_x;
    int32_t* const targets = memory + all_;
    for (int64_t i = 0; i < count_; ++i) {  // in increasing order, because d_x may be x
      targets[i] = op.targets[rows_[i]];
      std::copy_n(op.x + rows_[i] * inputs_, inputs_, d_x_ + i * inputs_);
    }
    op.shape.rows = count_;
    op.x = d_x_;
    op.targets = targets;
  }

  // The gradient scales of the counted rows, from the gradients of their sequences' sums. A row's
  // loss is minus its log probability.
  void set_scales(Op<T>& op, float* scales) const {
    if (op.d_sums == nullptr) return;
    for (int64_t i = 0; i < count_; ++i) scales[i] = -op.d_sums[rows_[i] / op.sequence_rows];
    op.gradient_scales = scales;
  }

  // Moves the gradients to their rows, in decreasing order, and clears the other rows.
  void spread() const {
    if (d_x_ == nullptr) return;
    int64_t next = count_ - 1;
    for (int64_t row = all_ - 1; row >= 0; --row) {
      T* const to = d_x_ + row * inputs_;
      if (next < 0 || rows_[next] != row)
        std::fill_n(to, inputs_, T{});
      else if (next-- != row)
        std::copy_n(d_x_ + (next + 1) * inputs_, inputs_, to);
    }
  }

 private:
  int64_t all_, inputs_, count_ = 0;
  int32_t* rows_;     // (count_), increasing
  T* d_x_ = nullptr;  // null if nothing was moved
};

// The gradients of one chunk, from that of its logits.
template <const LinearKernels& kKernels>
void run_backward(const Op<float>& op, int64_t chunk, float* gradient, std::byte* work) {
  const auto backward = op.backward_of(chunk, gradient, work);
  // Computed before d_x, which may overwrite x.
  if (op.d_weight != nullptr) kKernels.backward_weight(backward);
  if (op.d_bias != nullptr) linear_backward_bias(backward);
  kKernels.forward(linear_input_gradient(backward), work);
}
template <const HalfLinearKernels& kKernels>
void run_backward(const Op<BFloat16>& op, int64_t chunk, float* gradient, std::byte* work) {
  const int64_t rows = op.rows_of(chunk), first = chunk * op.chunk_rows() * op.shape.inputs;
  const auto [_, inputs, outputs] = op.shape;
  if (op.d_bias != nullptr)
    linear_backward_bias<float>({.shape = {rows, inputs, outputs},
                                 .stride = outputs,
                                 .padded_outputs = outputs,
                                 .accumulate_weight = false,
                                 .accumulate_bias = op.attributes.accumulate_bias || chunk > 0,
                                 .input_activation = Activation::kNone,
                                 .d_y = gradient,
                                 .d_bias = op.d_bias});
  // The products are of bfloat16, as they are where logits are stored.
  round_rows(gradient, rows, outputs);
  const auto* const rounded = reinterpret_cast<const BFloat16*>(gradient);
  if (op.d_weight != nullptr)
    kKernels.multiply({.rows = outputs,
                       .columns = inputs,
                       .depth = rows,
                       .a = {rounded, 2 * outputs, /*transposed=*/true},
                       .b = {op.x + first, inputs},
                       .c = op.d_weight,
                       .c_stride = inputs,
                       .accumulate = op.attributes.accumulate_weight || chunk > 0},
                      work);
  kKernels.forward({.shape = {rows, outputs, inputs},
                    .x = {rounded, 2 * outputs},
                    .w = {op.weight, inputs, /*transposed=*/true},
                    .epilogue = {},
                    .y = op.d_x + first},
                   work);
}

void forward(const LinearKernels& kernels, const LinearProduct<float>& logits, std::byte* work) {
  kernels.forward(logits, work);
}
void forward(const HalfLinearKernels& kernels,
             const LinearProduct<float>& logits,
             std::byte* work) {
  kernels.forward_to_floats(logits, work);
}

// The bias in floats; null if there is none.
const float* bias_of(const Op<float>& op, float*) { return op.bias; }
const float* bias_of(const Op<BFloat16>& op, float* memory) {
  if (op.bias == nullptr) return nullptr;
  std::transform(
      op.bias, op.bias + op.shape.outputs, memory, [](BFloat16 b) { return to_float(b); });
  return memory;
}

// The log probability of each sequence, from the losses of its rows, in their order.
void sum_sequences(const LossRow* rows, int64_t sequences, int64_t sequence_rows, float* sums) {
  for (int64_t n = 0; n < sequences; ++n) {
    double loss = 0;
    for (int64_t t = 0; t < sequence_rows; ++t) loss += rows[n * sequence_rows + t].loss;
    sums[n] = static_cast<float>(-loss);
  }
}

template <typename T, const auto& kKernels>
void run(const graph::OpCall& call) {
  Op<T> op{call};
  const Workspace at = workspace_of(op);
  auto* const logits = call.workspace<float>();
  auto* const results = reinterpret_cast<LossRow*>(call.workspace() + at.results);
  std::byte* const work = call.workspace() + at.products;
  const int64_t chunk_rows = op.chunk_rows();
  const float* const bias = bias_of(op, reinterpret_cast<float*>(call.workspace() + at.bias));
  const CountedRows<T> counted(
      op, call.lane(), reinterpret_cast<int32_t*>(call.workspace() + at.counted));
  counted.set_scales(op, reinterpret_cast<float*>(call.workspace() + at.scales));
  if (op.shape.rows == 0) {
    if (op.d_weight != nullptr && !op.attributes.accumulate_weight)
      std::fill_n(op.d_weight, op.shape.outputs * op.shape.inputs, 0.0f);
    if (op.d_bias != nullptr && !op.attributes.accumulate_bias)
      std::fill_n(op.d_bias, op.shape.outputs, 0.0f);
  }
  for (int64_t chunk = 0; chunk * chunk_rows < op.shape.rows; ++chunk) {
    const int64_t inputs = op.shape.inputs;
    forward(kKernels,
            {.shape = {op.rows_of(chunk), inputs, op.shape.outputs},
             .x = {op.x + chunk * chunk_rows * inputs, inputs},
             .w = {op.weight, inputs},
             .epilogue = {.bias = bias, .activation = Activation::kNone},
             .y = logits},
            work);
    softmax_cross_entropy_rows(
        op.loss_of(chunk, logits), call.lane(), results + chunk * chunk_rows);
    if (op.d_x != nullptr) run_backward<kKernels>(op, chunk, logits, work);
  }
  if (op.statistics != nullptr) sum_loss_rows(results, op.shape.rows, op.statistics);
  if (op.sums != nullptr)
    sum_sequences(results, op.shape.rows / op.sequence_rows, op.sequence_rows, op.sums);
  counted.spread();
}

// Rows of logits are padded only on GPUs.
bool supports(const graph::OpCall& call) {
  const graph::LinearCrossEntropy<float> op{call};
  return op.attributes.stride == op.shape.outputs;
}
bool supports_bf16x3(const graph::OpCall& call) {
  return call.bf16x3() && !stores_bf16(call) && supports(call);
}

bool supports_tiles(const graph::OpCall& call) { return stores_bf16(call) && supports(call); }

constexpr exec::Implementation of_tiles(graph::OpKind kind) {
  return exec::row<run<BFloat16, kTileLinear>,
                   workspace_bytes<kLinear, kTileLinear>,
                   supports_tiles,
                   tiles::available_for>(kind, "tiles");
}
constexpr exec::Implementation of_bf16x3(graph::OpKind kind) {
  return exec::row<run<float, kLinearBf16x3>,
                   workspace_bytes<kLinearBf16x3, kHalfLinear>,
                   supports_bf16x3>(kind, "bf16x3");
}
constexpr exec::Implementation of_gemm(graph::OpKind kind) {
  return native_row<run<float, kLinear>,
                    run<BFloat16, kHalfLinear>,
                    workspace_bytes<kLinear, kHalfLinear>,
                    supports>(kind, "gemm");
}

constexpr exec::Implementation kRows[] = {
    of_tiles(graph::OpKind::kLinearCrossEntropy),
    of_bf16x3(graph::OpKind::kLinearCrossEntropy),
    of_gemm(graph::OpKind::kLinearCrossEntropy),
    of_tiles(graph::OpKind::kSequenceLogProb),
    of_bf16x3(graph::OpKind::kSequenceLogProb),
    of_gemm(graph::OpKind::kSequenceLogProb),
    of_tiles(graph::OpKind::kSequenceLogProbBackward),
    of_bf16x3(graph::OpKind::kSequenceLogProbBackward),
    of_gemm(graph::OpKind::kSequenceLogProbBackward),
};

}  // namespace

constinit const exec::Implementations kCpuLinearCrossEntropy = kRows;

}  // namespace lockstep::cpu
