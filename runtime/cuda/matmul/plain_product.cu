#include "runtime/cuda/matmul/plain_product.h"

#include "runtime/base/half.h"
#include "runtime/cuda/launch.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Strides of a matrix: element (i, j) is at i * row + j * column.
struct Steps {
  int64_t row, column;
};

Steps steps_of(bool transposed, int64_t stride, int64_t columns) {
  const int64_t row = stride > 0 ? stride : columns;
  return transposed ? Steps{1, row} : Steps{row, 1};
}

template <typename In, typename Out>
struct PlainProduct {
  const In* a;
  const In* b;
  const In* bias;
  Out* out;
  int64_t m, n, k, batch;
  Steps in_a, in_b;
  int64_t stride_out;
  int64_t batch_a, batch_b, batch_out;
  float scale;
  bool accumulate;
};

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads) plain_product_kernel(PlainProduct<In, Out> p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.batch * p.m * p.n) return;
  const int64_t row = i / p.n % p.m, column = i % p.n, number = i / p.n / p.m;
  const In* const a = p.a + number * p.batch_a + row * p.in_a.row;
  const In* const b = p.b + number * p.batch_b + column * p.in_b.column;
  float sum = 0;
  for (int64_t q = 0; q < p.k; ++q)
    sum = fmaf(to_float(a[q * p.in_a.column]), to_float(b[q * p.in_b.row]), sum);
  sum *= p.scale;
  if (p.bias != nullptr) sum += to_float(p.bias[column]);
  Out& to = p.out[number * p.batch_out + row * p.stride_out + column];
  if (p.accumulate) sum += to_float(to);
  to = round_to<Out>(sum);
}

template <typename In, typename Out>
void start(const Product& p, const ProductOperands& operands, Stream stream) {
  const int64_t columns_a = p.transpose_a ? p.m : p.k, columns_b = p.transpose_b ? p.k : p.n;
  const PlainProduct<In, Out> product = {
      .a = static_cast<const In*>(operands.a),
      .b = static_cast<const In*>(operands.b),
      .bias = p.epilogue == Epilogue::kBias ? static_cast<const In*>(operands.bias) : nullptr,
      .out = static_cast<Out*>(operands.out),
      .m = p.m,
      .n = p.n,
      .k = p.k,
      .batch = p.batch,
      .in_a = steps_of(p.transpose_a, p.stride_a, columns_a),
      .in_b = steps_of(p.transpose_b, p.stride_b, columns_b),
      .stride_out = p.stride_out > 0 ? p.stride_out : p.n,
      .batch_a = p.batch_a,
      .batch_b = p.batch_b,
      .batch_out = p.batch_out,
      .scale = operands.scale,
      .accumulate = p.accumulate};
  launch({blocks_for(p.batch * p.m * p.n, kThreads), kThreads, stream},
         plain_product_kernel<In, Out>,
         product);
}

template <typename In>
void start(const Product& product, const ProductOperands& operands, Stream stream) {
  if (product.out == DType::kF32) return start<In, float>(product, operands, stream);
  start<In, In>(product, operands, stream);
}

}  // namespace

void plain_product(const Product& product, const ProductOperands& operands, Stream stream) {
  switch (product.in) {
    case DType::kBF16: return start<BFloat16>(product, operands, stream);
    case DType::kF16: return start<Float16>(product, operands, stream);
    default: return start<float, float>(product, operands, stream);
  }
}

}  // namespace lockstep::cuda
