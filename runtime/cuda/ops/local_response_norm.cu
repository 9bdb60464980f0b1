// A block processes a piece of the channels of some rows, and keeps in shared memory what
// neighbouring channels read: x for all channels that the piece's windows reach and, in the
// backward pass, the terms of the sums too.
#include "runtime/graph/ops/local_response_norm.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 128;  // max channels per block
constexpr int kMaxRows = 32;
constexpr int kReach =
    static_cast<int>(graph::kMaxNormChannels) - 1;  // of a window, beyond its own channel
// Elements of a block's rows with `Reaches` times the window's reach in addition to the piece.
template <int Reaches>
inline constexpr int kShared = 2 * kThreads + kMaxRows* Reaches* kReach;

struct Piece {
  int channels, rows;
};

// With few channels, a block has more rows, as many as fit.
Piece piece_of(int64_t channels) {
  const int piece = static_cast<int>(std::min<int64_t>(channels, kPiece));
  return {piece, std::clamp(2 * kThreads / piece, 1, kMaxRows)};
}

struct Window {
  int size, before, after;  // before, after: channels of the window before and after its own
  float share, k, beta;     // share: alpha / size
};

// s^-beta. The usual 3/4 needs only square roots.
__device__ __forceinline__ float inverse_power(float s, float beta) {
  if (beta == 0.75f) return rsqrtf(s) * sqrtf(rsqrtf(s));
  return powf(s, -beta);
}

// s of the channel whose window begins at `from`.
__device__ __forceinline__ float window_scale(const Window& w, const float* from) {
  float sum = 0;
  for (int i = 0; i < w.size; ++i) sum = fmaf(from[i], from[i], sum);
  return fmaf(sum, w.share, w.k);
}

// Fills `to` (rows, wide) with x from channel `first` on, and with zeros outside x.
template <typename T>
__device__ __forceinline__ void read_piece(const T* x,
                                           int64_t row,
                                           int64_t rows,
                                           int64_t channels,
                                           int64_t first,
                                           int wide,
                                           int count,
                                           float* to) {
  for (int i = threadIdx.x; i < count * wide; i += kThreads) {
    const int64_t r = row + i / wide, c = first + i % wide;
    to[i] = r < rows && c >= 0 && c < channels ? to_float(x[r * channels + c]) : 0.0f;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(graph::LocalResponseNormForward<T> op, Window w, Piece piece) {
  __shared__ float around[kShared<1>];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * piece.rows;
  const int64_t first = block_down() * piece.channels;
  const int wide = piece.channels + w.size - 1;
  read_piece(op.x, row, op.rows, op.channels, first - w.before, wide, piece.rows, around);
  __syncthreads();
  for (int i = threadIdx.x; i < piece.rows * piece.channels; i += kThreads) {
    const int r = i / piece.channels, c = i % piece.channels;
    if (row + r >= op.rows || first + c >= op.channels) continue;
    const float* const from = around + r * wide + c;
    const float value = from[w.before] * inverse_power(window_scale(w, from), w.beta);
    op.y[(row + r) * op.channels + first + c] = round_to<T>(value);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(graph::LocalResponseNormBackward<T> op, Window w, Piece piece) {
  // Channel c's window is [c - before, c + after]; the windows that contain c belong to the
  // channels [c - after, c + before].
  __shared__ float around[kShared<2>], gradient[kShared<1>], ratio[kShared<1>];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * piece.rows;
  const int64_t first = block_down() * piece.channels;
  const int wide = piece.channels + w.size - 1, wider = wide + w.size - 1;
  const int64_t reached = first - w.after - w.before;
  read_piece(op.x, row, op.rows, op.channels, reached, wider, piece.rows, around);
  read_piece(op.d_y, row, op.rows, op.channels, first - w.after, wide, piece.rows, gradient);
  __syncthreads();
  for (int i = threadIdx.x; i < piece.rows * wide; i += kThreads) {
    const float* const from = around + i / wide * wider + i % wide;
    const float s = window_scale(w, from);
    gradient[i] *= inverse_power(s, w.beta);
    ratio[i] = gradient[i] * from[w.before] / s;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < piece.rows * piece.channels; i += kThreads) {
    const int r = i / piece.channels, c = i % piece.channels;
    if (row + r >= op.rows || first + c >= op.channels) continue;
    float sum = 0;
    for (int k = 0; k < w.size; ++k) sum += ratio[r * wide + c + k];
    const float centre = around[r * wider + c + w.after + w.before];
    const float value = fmaf(-2 * w.share * w.beta * centre, sum, gradient[r * wide + c + w.after]);
    op.d_x[(row + r) * op.channels + first + c] = round_to<T>(value);
  }
}

Window window_of(const graph::LocalResponseNormAttributes& a) {
  LOCKSTEP_REQUIRE(a.size >= 1 && a.size <= graph::kMaxNormChannels);
  const int size = static_cast<int>(a.size);
  return {size, size / 2, size - 1 - size / 2, a.alpha / static_cast<float>(size), a.k, a.beta};
}

// A block of threads for each piece of rows and channels.
template <typename Op>
void start(const Op& op, void (*kernel)(Op, Window, Piece), Stream stream) {
  const Piece piece = piece_of(op.channels);
  launch({tall_grid(blocks_for(op.rows, piece.rows), blocks_for(op.channels, piece.channels)),
          kThreads,
          stream},
         kernel,
         op,
         window_of(op.window),
         piece);
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::LocalResponseNormForward>(
      call, [&]<typename T>(const auto& op) { start(op, forward_kernel<T>, stream_of(call)); });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::LocalResponseNormBackward>(
      call, [&]<typename T>(const auto& op) { start(op, backward_kernel<T>, stream_of(call)); });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, graph::supports_window>(
        graph::OpKind::kLocalResponseNorm, "native"),
    exec::row<run_backward, exec::no_workspace, graph::supports_window>(
        graph::OpKind::kLocalResponseNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaLocalResponseNorm = kRows;

}  // namespace lockstep::cuda
