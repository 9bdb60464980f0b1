#include "runtime/cuda/matmul/plain_product.h"

#include "runtime/base/half.h"
#include "runtime/cuda/launch.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A matrix as it is read: element (i, j) lies at i * row + j * column.
struct Steps {
  int64_t row, column;
};

Steps steps_of(bool transposed, int64_t stride, int64_t columns) {
  const int64_t row = stride > 0 ? stride : columns;
  return transposed ? Steps{1, row} : Steps{row, 1};
}

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads) plain_product_kernel(const In* a,
                                                                 const In* b,
                                                                 const In* bias,
                                                                 Out* out,
                                                                 int64_t m,
                                                                 int64_t n,
                                                                 int64_t k,
                                                                 Steps in_a,
                                                                 Steps in_b,
                                                                 int64_t stride_out,
                                                                 bool accumulate) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m * n) return;
  const int64_t row = i / n, column = i % n;
  float sum = 0;
  for (int64_t p = 0; p < k; ++p)
    sum = fmaf(to_float(a[row * in_a.row + p * in_a.column]),
               to_float(b[p * in_b.row + column * in_b.column]),
               sum);
  if (bias != nullptr) sum += to_float(bias[column]);
  Out& to = out[row * stride_out + column];
  if (accumulate) sum += to_float(to);
  to = round_to<Out>(sum);
}

template <typename In, typename Out>
void start(const Product& p, const ProductOperands& operands, Stream stream) {
  const int64_t columns_a = p.transpose_a ? p.m : p.k, columns_b = p.transpose_b ? p.k : p.n;
  launch({{static_cast<unsigned>((p.m * p.n + kThreads - 1) / kThreads), 1, 1},
          {kThreads, 1, 1},
          stream},
         plain_product_kernel<In, Out>,
         static_cast<const In*>(operands.a),
         static_cast<const In*>(operands.b),
         p.epilogue == Epilogue::kBias ? static_cast<const In*>(operands.bias) : nullptr,
         static_cast<Out*>(operands.out),
         p.m,
         p.n,
         p.k,
         steps_of(p.transpose_a, p.stride_a, columns_a),
         steps_of(p.transpose_b, p.stride_b, columns_b),
         p.stride_out > 0 ? p.stride_out : p.n,
         p.accumulate);
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
