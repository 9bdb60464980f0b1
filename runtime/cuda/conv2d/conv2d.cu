// Convolutions as implicit GEMM: all three passes are products of two matrices that are not stored,
// but gathered from images and weights tile by tile (im2col without the copy):
//
//   forward           y (pixels, outputs)   = patches of x (pixels, taps * channels) * w^T
//   gradient of x   d_x (pixels, channels)  = patches of d_y (pixels, taps * outputs) * w'
//   gradient of w   d_w (outputs, taps * channels) = d_y^T (outputs, pixels) * patches of x
//
// Each group of channels is a separate product. A block of kThreads threads computes a tile of
// kTile x kTile sums, of which each thread keeps kEach x kEach in registers:
//
//                       tile_b (kDepth x kTile)        for every kDepth products:
//                      +---------------------+           gather() fills tile_a and tile_b
//     tile_a           | sums                |           __syncthreads()
//     (kDepth x kTile) | (kTile x kTile)     |           each thread: kDepth steps of
//                      +---------------------+             kEach x kEach fused multiply-adds
//
// The tiles are in shared memory, stored with the depth outermost, so that a thread reads kEach
// neighbouring rows, and columns, as one vector. Gathering (the load() of an operand) finds which
// pixel a tap reads, and returns zeros for padding and beyond the matrix.
//
// The gradient of w has few sums of very many products, too few tiles to fill a GPU. So the
// products are cut into slices, each of which writes its own sums in float, and sum_partials() adds
// the slices in order. The invariant: a sum is one chain of fused multiply-adds over the products
// in increasing order (per slice), and the shape alone determines the slices. Nothing is atomic, so
// the bits never differ.
#include "runtime/cuda/conv2d/conv2d.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

constexpr int kTile = kConv2dTile;
constexpr int kDepth = kConv2dDepth;
constexpr int kThreads = 256;
constexpr int kEach = 4;  // rows, and columns, per thread
// Keeps vectors of a tile's rows aligned, and spreads its columns over the banks.
constexpr int kPad = 4;

// The shape, as integers by which kernels divide.
struct Sizes {
  explicit Sizes(const graph::Conv2dShape& s)
      : height(static_cast<int>(s.height)),
        width(static_cast<int>(s.width)),
        out_height(static_cast<int>(s.out_height())),
        out_width(static_cast<int>(s.out_width())),
        kernel_h(static_cast<int>(s.kernel_h)),
        kernel_w(static_cast<int>(s.kernel_w)),
        stride_h(static_cast<int>(s.stride_h)),
        stride_w(static_cast<int>(s.stride_w)),
        pad_h(static_cast<int>(s.pad_h)),
        pad_w(static_cast<int>(s.pad_w)),
        dilation_h(static_cast<int>(s.dilation_h)),
        dilation_w(static_cast<int>(s.dilation_w)),
        depth(static_cast<int>(s.group_channels())),
        group_outputs(static_cast<int>(s.group_outputs())),
        channels(s.channels),
        outputs(s.outputs) {}
  int height, width, out_height, out_width;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int depth, group_outputs;  // channels and outputs per group
  int64_t channels, outputs;
  __host__ __device__ int patch() const { return kernel_h * kernel_w * depth; }
};

// A tap and a channel, from their index within (KH, KW, C).
struct Tap {
  int row, column, channel;
  __device__ __forceinline__ Tap(int number, int kernel_w, int channels) {
    const int tap = number / channels;
    channel = number - tap * channels;
    row = tap / kernel_w;
    column = tap - row * kernel_w;
  }
};

// Operands: load(row, product, values) reads N elements, either N consecutive products of a row
// (kAlongProducts) or one product of N consecutive rows. N divides the number of contiguous
// elements. Elements outside the matrix are zero.

// The pixels of x that the taps read for each pixel of y: (out pixels, KH KW C).
template <typename T>
struct Patches {
  static constexpr bool kAlongProducts = true;
  Sizes s;
  int rows, products;
  const T* x;
  __device__ __forceinline__ void enter(int group) { x += static_cast<int64_t>(group) * s.depth; }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    if (row >= rows || product >= products) return;
    const Pixel at(row, s.out_height, s.out_width);
    const Tap tap(product, s.kernel_w, s.depth);
    const int h = at.row * s.stride_h - s.pad_h + tap.row * s.dilation_h;
    const int v = at.column * s.stride_w - s.pad_w + tap.column * s.dilation_w;
    if (h < 0 || h >= s.height || v < 0 || v >= s.width) return;
    const int64_t pixel = (static_cast<int64_t>(at.image) * s.height + h) * s.width + v;
    cuda::load(x + pixel * s.channels + tap.channel, to);
  }
};

// The same transposed: (KH KW C, out pixels).
template <typename T>
struct TransposedPatches {
  static constexpr bool kAlongProducts = false;
  Patches<T> patches;  // its rows are the products
  __device__ __forceinline__ void enter(int group) { patches.enter(group); }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    patches.load(product, row, to);
  }
};

// The gradients of all outputs to which a pixel of x contributes: (pixels, KH KW O).
template <typename T>
struct GradientPatches {
  static constexpr bool kAlongProducts = true;
  Sizes s;
  int rows, products;
  const T* d_y;
  __device__ __forceinline__ void enter(int group) {
    d_y += static_cast<int64_t>(group) * s.group_outputs;
  }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    if (row >= rows || product >= products) return;
    const Pixel at(row, s.height, s.width);
    const Tap tap(product, s.kernel_w, s.group_outputs);
    const int down = at.row + s.pad_h - tap.row * s.dilation_h;
    const int across = at.column + s.pad_w - tap.column * s.dilation_w;
    if (down < 0 || across < 0) return;
    const int h = down / s.stride_h, v = across / s.stride_w;
    if (h * s.stride_h != down || v * s.stride_w != across) return;
    if (h >= s.out_height || v >= s.out_width) return;
    const int64_t pixel = (static_cast<int64_t>(at.image) * s.out_height + h) * s.out_width + v;
    cuda::load(d_y + pixel * s.outputs + tap.channel, to);
  }
};

// The weights of each output: (O, KH KW C).
template <typename T>
struct Weights {
  static constexpr bool kAlongProducts = true;
  Sizes s;
  const T* w;
  __device__ __forceinline__ void enter(int group) {
    w += static_cast<int64_t>(group) * s.group_outputs * s.patch();
  }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    if (row >= s.group_outputs || product >= s.patch()) return;
    cuda::load(w + static_cast<int64_t>(row) * s.patch() + product, to);
  }
};

// The weights of each input channel: (C, KH KW O).
template <typename T>
struct TransposedWeights {
  static constexpr bool kAlongProducts = false;
  Sizes s;
  int products;
  const T* w;
  __device__ __forceinline__ void enter(int group) {
    w += static_cast<int64_t>(group) * s.group_outputs * s.patch();
  }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    if (row >= s.depth || product >= products) return;
    const Tap tap(product, s.kernel_w, s.group_outputs);
    const int64_t at = static_cast<int64_t>(tap.channel) * s.kernel_h + tap.row;
    cuda::load(w + (at * s.kernel_w + tap.column) * s.depth + row, to);
  }
};

// The gradients of each output: (O, out pixels).
template <typename T>
struct TransposedGradients {
  static constexpr bool kAlongProducts = false;
  Sizes s;
  int products;
  const T* d_y;
  __device__ __forceinline__ void enter(int group) {
    d_y += static_cast<int64_t>(group) * s.group_outputs;
  }

  template <int N>
  __device__ __forceinline__ void load(int row, int product, float (&to)[N]) const {
    if (row >= s.group_outputs || product >= products) return;
    cuda::load(d_y + product * s.outputs + row, to);
  }
};

// The destination of the sums of a group and slice, and the bias that is added to each column.
template <typename T>
struct Result {
  T* out;
  int64_t stride;              // elements between rows
  int64_t of_group, of_slice;  // elements between groups, and between slices
  const T* bias;               // (groups, columns) or null
};

// A tile in shared memory. Each row begins at a multiple of a vector's size.
struct alignas(16) Tile {
  float at[kDepth][kTile + kPad];
};

// Loads a tile of an operand, kDepth products from `product` on, as (products, rows).
template <int N, typename Operand>
__device__ __forceinline__ void gather(
    const Operand& operand, int row, int product, int last_product, Tile& tile) {
  constexpr int kLoads = kTile * kDepth / kThreads / N;
  constexpr int kTogether = (Operand::kAlongProducts ? kDepth : kTile) / N;
#pragma unroll
  for (int part = 0; part < kLoads; ++part) {
    const int number = part * kThreads + static_cast<int>(threadIdx.x);
    const int across = number % kTogether * N, down = number / kTogether;
    const int tile_row = Operand::kAlongProducts ? down : across;
    const int depth = Operand::kAlongProducts ? across : down;
    float values[N] = {};
    if (product + depth < last_product)
      operand.template load<N>(row + tile_row, product + depth, values);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (Operand::kAlongProducts) {
        tile.at[depth + i][tile_row] = values[i];
      } else {
        tile.at[depth][tile_row + i] = values[i];
      }
    }
  }
}

// NA and NB: elements of each operand that are read at once, 4 or 1. Products that are read at once
// are in the same slice, because slices are multiples of kDepth.
template <int NA, int NB, typename A, typename B, typename T>
__global__ void __launch_bounds__(kThreads, 2) implicit_gemm_kernel(A a,
                                                                    B b,
                                                                    Result<T> result,
                                                                    int rows,
                                                                    int columns,
                                                                    int products,
                                                                    int slice_products,
                                                                    int slices) {
  __shared__ Tile tile_a, tile_b;
  // Blocks of the same slice of a group are consecutive.
  const unsigned row_blocks = (static_cast<unsigned>(rows) + kTile - 1) / kTile;
  const auto number = static_cast<int>(blockIdx.x / row_blocks);  // index of the group's slice
  const int row = static_cast<int>(blockIdx.x % row_blocks) * kTile;
  const int64_t first_column = block_down() * kTile;
  if (first_column >= columns) return;
  const auto column = static_cast<int>(first_column);
  const int group = number / slices, slice = number - group * slices;
  a.enter(group);
  b.enter(group);
  const int begin = slice * slice_products;
  const int end = begin + slice_products < products ? begin + slice_products : products;
  const int thread_row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  const int thread_column = static_cast<int>(threadIdx.x) % (kTile / kEach) * kEach;
  float sums[kEach][kEach] = {};
  for (int product = begin; product < end; product += kDepth) {
    gather<NA>(a, row, product, end, tile_a);
    gather<NB>(b, column, product, end, tile_b);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float left[kEach], right[kEach];
      load(&tile_a.at[depth][thread_row], left);
      load(&tile_b.at[depth][thread_column], right);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  T* const out = result.out + group * result.of_group + slice * result.of_slice;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = row + thread_row + i;
    if (r >= rows) return;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int c = column + thread_column + j;
      if (c >= columns) continue;
      const float bias = result.bias == nullptr ? 0.0f : to_float(result.bias[group * columns + c]);
      out[r * result.stride + c] = round_to<T>(sums[i][j] + bias);
    }
  }
}

template <int NA, int NB, typename A, typename B, typename T>
void start(const A& a, const B& b, const Result<T>& result, const Conv2dExtents& e, Stream stream) {
  const unsigned row_blocks = blocks_for(e.rows, kTile);
  launch({tall_grid(blocks_for(row_blocks * e.groups * e.slices, 1), blocks_for(e.columns, kTile)),
          kThreads,
          stream},
         implicit_gemm_kernel<NA, NB, A, B, T>,
         a,
         b,
         result,
         e.rows,
         e.columns,
         e.products,
         e.slice_products,
         e.slices);
}

// Reads four elements at once if the channels of both operands are multiples of four.
template <typename A, typename B, typename Out>
void multiply(const A& a,
              const B& b,
              bool vectors_a,
              bool vectors_b,
              const Result<Out>& result,
              const Conv2dExtents& e,
              Stream stream) {
  if (vectors_a && vectors_b) return start<4, 4>(a, b, result, e, stream);
  start<1, 1>(a, b, result, e, stream);
}

bool is_multiple_of_4(int64_t n) { return n % 4 == 0; }

template <typename T>
struct AddBias {
  const T* bias;
  T* y;
  int64_t channels;

  template <typename Count>
  __device__ void operator()(int64_t row, int64_t channel, Count) const {
    float values[Count::value], more[Count::value];
    load(bias + channel, more);
    load(y + row * channels + channel, values);
#pragma unroll
    for (int i = 0; i < Count::value; ++i) values[i] += more[i];
    store(values, y + row * channels + channel);
  }
};

}  // namespace

template <typename T>
void conv2d_forward(const graph::Conv2dForward<T>& op, Stream stream) {
  const graph::Conv2dShape& shape = op.shape;
  const Sizes s(shape);
  const Conv2dExtents e =
      unsliced(shape.out_pixels(), shape.group_outputs(), shape.patch(), shape.groups);
  const bool vectors = is_multiple_of_4(s.depth) && is_aligned(op.x) && is_aligned(op.weight);
  multiply(Patches<T>{s, static_cast<int>(e.rows), static_cast<int>(e.products), op.x},
           Weights<T>{s, op.weight},
           vectors,
           vectors,
           Result<T>{op.y, shape.outputs, e.columns, 0, op.bias},
           e,
           stream);
}

template <typename T>
void conv2d_backward_input(const graph::Conv2dBackward<T>& op, Stream stream) {
  const graph::Conv2dShape& shape = op.shape;
  const Sizes s(shape);
  const int64_t products = shape.kernel_h * shape.kernel_w * shape.group_outputs();
  const Conv2dExtents e = unsliced(shape.pixels(), shape.group_channels(), products, shape.groups);
  multiply(GradientPatches<T>{s, static_cast<int>(e.rows), static_cast<int>(products), op.d_y},
           TransposedWeights<T>{s, static_cast<int>(products), op.weight},
           is_multiple_of_4(s.group_outputs) && is_aligned(op.d_y),
           is_multiple_of_4(s.depth) && is_aligned(op.weight),
           Result<T>{op.d_x, shape.channels, e.columns, 0, nullptr},
           e,
           stream);
}

template <typename T>
void conv2d_backward_weight(const graph::Conv2dBackward<T>& op, Stream stream) {
  const graph::Conv2dShape& shape = op.shape;
  const Sizes s(shape);
  const Conv2dExtents e = weight_extents(shape);
  const int64_t elements = shape.outputs * shape.patch();
  const bool direct = e.slices == 1 && !op.accumulate_weight;
  float* const partials = reinterpret_cast<float*>(op.workspace);
  const int products = static_cast<int>(e.products), patch = static_cast<int>(shape.patch());
  multiply(TransposedGradients<T>{s, products, op.d_y},
           TransposedPatches<T>{{s, products, patch, op.x}},
           is_multiple_of_4(s.group_outputs) && is_aligned(op.d_y),
           is_multiple_of_4(s.depth) && is_aligned(op.x),
           Result<float>{direct ? op.d_weight : partials,
                         shape.patch(),
                         e.rows * shape.patch(),
                         elements,
                         nullptr},
           e,
           stream);
  if (!direct)
    sum_partials(partials, e.slices, elements, op.accumulate_weight, op.d_weight, nullptr, stream);
}

template <typename T>
void add_bias(const graph::Conv2dForward<T>& op, Stream stream) {
  const int64_t channels = op.shape.outputs;
  for_each_pixel<kVectorWidth<T>>(op.shape.out_pixels(),
                                  channels,
                                  is_vectorizable<T>(channels, {op.bias, op.y}),
                                  AddBias<T>{op.bias, op.y, channels},
                                  stream);
}

#define LOCKSTEP_INSTANTIATE(T)                                                  \
  template void conv2d_forward(const graph::Conv2dForward<T>&, Stream);          \
  template void conv2d_backward_input(const graph::Conv2dBackward<T>&, Stream);  \
  template void conv2d_backward_weight(const graph::Conv2dBackward<T>&, Stream); \
  template void add_bias(const graph::Conv2dForward<T>&, Stream);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(BFloat16)
LOCKSTEP_INSTANTIATE(Float16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::cuda
