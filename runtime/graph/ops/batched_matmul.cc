#include "runtime/graph/ops/batched_matmul.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// An extent before the matrices, counted from the last one; 1 if there is none.
int64_t outer_extent(const Shape& shape, int from_last) {
  const int dimension = shape.rank() - 3 - from_last;
  return dimension < 0 ? 1 : shape[dimension];
}

int64_t broadcast_extent(const Shape& a, const Shape& b, int from_last) {
  const int64_t in_a = outer_extent(a, from_last), in_b = outer_extent(b, from_last);
  return in_a == 1 ? in_b : in_a;
}

int64_t matrix_elements(const Shape& shape) {
  return shape[shape.rank() - 1] * shape[shape.rank() - 2];
}

}  // namespace

void ProductLoops::append(const Loop& next) {
  if (rank > 0) {
    Loop& last = loops[rank - 1];
    if (last.a == next.a * next.count && last.b == next.b * next.count &&
        last.y == next.y * next.count) {
      last = {last.count * next.count, next.a, next.b, next.y};
      return;
    }
  }
  loops[rank++] = next;
}

BatchedProducts BatchedProducts::of(const Shape& a,
                                    const Shape& b,
                                    const Shape& y,
                                    const BatchedMatmulAttributes& attributes) {
  BatchedProducts made{.m = y[y.rank() - 2],
                       .n = y[y.rank() - 1],
                       .k = a[a.rank() - (attributes.transpose_a ? 2 : 1)],
                       .transpose_a = attributes.transpose_a,
                       .transpose_b = attributes.transpose_b,
                       .products = {},
                       .sums = {}};
  const int outer = std::max({a.rank(), b.rank(), y.rank()}) - 2;
  ProductLoops::Loop loops[Shape::kMaxRank];  // innermost first
  int64_t a_stride = matrix_elements(a), b_stride = matrix_elements(b), y_stride = made.m * made.n;
  for (int d = 0; d < outer; ++d) {
    const auto step = [&](const Shape& shape, int64_t& stride) {
      const int64_t extent = outer_extent(shape, d), here = stride;
      stride *= extent;
      return extent == 1 ? 0 : here;
    };
    loops[d] = {broadcast_extent(a, b, d), step(a, a_stride), step(b, b_stride), step(y, y_stride)};
  }
  for (int d = outer; d-- > 0;) {
    if (loops[d].count == 1) continue;
    (outer_extent(y, d) == 1 ? made.sums : made.products).append(loops[d]);
  }
  // Rows of several a's, one after the other, times the same b: one product with more rows.
  ProductLoops& products = made.products;
  while (products.rank > 0 && !made.transpose_a) {
    const ProductLoops::Loop& last = products.loops[products.rank - 1];
    if (last.b != 0 || last.a != made.m * made.k || last.y != made.m * made.n) break;
    made.m *= last.count;
    --products.rank;
  }
  // Sums that continue where the next matrices begin: one product with more depth.
  while (made.sums.rank > 0 && made.transpose_a && !made.transpose_b) {
    const ProductLoops::Loop& last = made.sums.loops[made.sums.rank - 1];
    if (last.a != made.k * made.m || last.b != made.k * made.n) break;
    made.k *= last.count;
    --made.sums.rank;
  }
  return made;
}

TensorId ops::batched_matmul(GraphBuilder& builder,
                             const std::string& name,
                             TensorId a,
                             TensorId b,
                             bool transpose_a,
                             bool transpose_b,
                             float scale) {
  const Shape a_shape = builder.shape(a), b_shape = builder.shape(b);
  const int a_rank = a_shape.rank(), b_rank = b_shape.rank();
  const auto check = [&](bool right) {
    LOCKSTEP_CHECK(right, "{}: {} times {} ", name, to_string(a_shape), to_string(b_shape));
  };
  check(a_rank >= 2 && b_rank >= 2);
  check(a_shape[a_rank - (transpose_a ? 2 : 1)] == b_shape[b_rank - (transpose_b ? 1 : 2)]);
  for (const TensorId input : {a, b}) {
    const Tensor& tensor = builder[input];
    LOCKSTEP_CHECK(tensor.dtype == builder[a].dtype && tensor.dtype != DType::kI32 &&
                       tensor.role != Role::kParameter && tensor.padded_columns == 0,
                   "{}: {} of {} ",
                   name,
                   tensor.name,
                   lockstep::name_of(tensor.dtype));
  }
  Shape shape;
  for (int d = std::max(a_rank, b_rank) - 2; d-- > 0;) {
    const int64_t extent = broadcast_extent(a_shape, b_shape, d), in_b = outer_extent(b_shape, d);
    check(in_b == 1 || in_b == extent);
    shape.append(extent);
  }
  shape.append(a_shape[a_rank - (transpose_a ? 1 : 2)]);
  shape.append(b_shape[b_rank - (transpose_b ? 2 : 1)]);
  const TensorId y = builder.tensor(name, shape, builder[a].dtype, Role::kActivation);
  builder.append({OpKind::kBatchedMatmul,
                  name,
                  {a, b},
                  {y},
                  BatchedMatmulAttributes{transpose_a, transpose_b, scale}});
  return y;
}

namespace {

// With A = op(a) and B = op(b): dA = scale dY B^T, dB = scale A^T dY. d_a and d_b are these, or
// their transposes (B dY^T, dY^T A) if op transposes.
OpInputs batched_matmul_gradient(GradientBuilder& builder,
                                 const Op& op,
                                 const OpOutputs& d_outputs) {
  const auto [transpose_a, transpose_b, scale] = op.as<BatchedMatmulAttributes>();
  const TensorId a = op.inputs[BatchedMatmulIn::kA], b = op.inputs[BatchedMatmulIn::kB],
                 d_y = d_outputs[BatchedMatmulOut::kY];
  const auto product = [&](TensorId of, TensorId left, TensorId right, bool left_t, bool right_t) {
    if (!builder.needs_gradient(of)) return kNoTensor;
    const TensorId gradient = builder.new_gradient(of);
    builder.append({OpKind::kBatchedMatmul,
                    op.name,
                    {left, right},
                    {gradient},
                    BatchedMatmulAttributes{left_t, right_t, scale}});
    return gradient;
  };
  const TensorId d_a =
      transpose_a ? product(a, b, d_y, transpose_b, true) : product(a, d_y, b, false, !transpose_b);
  const TensorId d_b =
      transpose_b ? product(b, d_y, a, true, transpose_a) : product(b, a, d_y, !transpose_a, false);
  return {d_a, d_b};
}

int64_t batched_matmul_flops(const Graph& graph, const Op& op) {
  const auto sizes = BatchedProducts::of(graph.shape(op.inputs[BatchedMatmulIn::kA]),
                                         graph.shape(op.inputs[BatchedMatmulIn::kB]),
                                         graph.shape(op.outputs[BatchedMatmulOut::kY]),
                                         op.as<BatchedMatmulAttributes>());
  return 2 * sizes.m * sizes.n * sizes.k * sizes.products.count() * sizes.sums.count();
}

}  // namespace

const OpSchema kBatchedMatmulSchema = {batched_matmul_gradient, batched_matmul_flops, {}};

}  // namespace lockstep::graph
