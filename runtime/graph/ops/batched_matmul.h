#pragma once
// batched_matmul: y = scale op(a) op(b) for matrices in the last two dimensions, for all indices of
// the other dimensions; op optionally transposes. The gradients of a and b are such products too.
// a is (..., M, K), or (..., K, M) transposed; b is (..., K, N), or (..., N, K) transposed. The
// other dimensions are broadcast as in NumPy. Floats of one type; no parameters.
// y is (..., M, N). If a dimension of y is 1 or missing, but that of a or b is not, y is the sum
// over that dimension, in order: this is the gradient of a broadcast input.

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class BatchedMatmulIn : InputIndex { kA, kB };
enum class BatchedMatmulOut : OutputIndex { kY };

struct BatchedMatmulAttributes {
  bool transpose_a = false, transpose_b = false;
  float scale = 1;
};

namespace ops {

// a and b have at least two dimensions. The dimensions before the last two are equal, or 1, or
// missing in one of them.
TensorId batched_matmul(GraphBuilder& builder,
                        const std::string& name,
                        TensorId a,
                        TensorId b,
                        bool transpose_a,
                        bool transpose_b,
                        float scale);

}  // namespace ops

// Nested loops over products, outermost first.
struct ProductLoops {
  struct Loop {
    int64_t count, a, b, y;  // elements from one product to the next
  };
  Loop loops[Shape::kMaxRank];
  int rank = 0;

  int64_t count() const {
    int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= loops[d].count;
    return product;
  }
  // The offsets of product number `number` relative to the first one.
  struct Place {
    int64_t a = 0, b = 0, y = 0;
  };
  LOCKSTEP_HD Place place(int64_t number) const {
    Place at;
    for (int d = rank; d-- > 0;) {
      const int64_t index = number % loops[d].count;
      number /= loops[d].count;
      at.a += index * loops[d].a;
      at.b += index * loops[d].b;
      at.y += index * loops[d].y;
    }
    return at;
  }
  void append(const Loop& next);
};

// The products to compute: m x n with depth k, one for each iteration of `products`, each the sum
// over the iterations of `sums`. Loops that only make a matrix longer are merged into m or k.
struct BatchedProducts {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  ProductLoops products, sums;

  static BatchedProducts of(const Shape& a,
                            const Shape& b,
                            const Shape& y,
                            const BatchedMatmulAttributes& attributes);
};

template <typename T>
struct BatchedMatmul {
  const OpCall& call = OpCall::none();
  BatchedProducts sizes = BatchedProducts::of(call.input_shape(BatchedMatmulIn::kA),
                                              call.input_shape(BatchedMatmulIn::kB),
                                              call.output_shape(BatchedMatmulOut::kY),
                                              call.attributes<BatchedMatmulAttributes>());
  float scale = call.attributes<BatchedMatmulAttributes>().scale;
  // (m, k), or (k, m) transposed, at sizes.products.place() + sizes.sums.place()
  const T* a = call.input<T>(BatchedMatmulIn::kA);
  const T* b = call.input<T>(BatchedMatmulIn::kB);  // (k, n), or (n, k) transposed
  T* y = call.output<T>(BatchedMatmulOut::kY);      // (m, n)
  std::byte* workspace = call.workspace();          // as the implementation needs
};

}  // namespace lockstep::graph
