// Reductions over axes, cumulative sums, ArgMax and ArgMin, global pooling, and softmax.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "models/onnx/lowering/attention.h"
#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/layers.h"
#include "models/onnx/lowering/pointwise_functions.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/softmax.h"

namespace lockstep::onnx {
namespace {

using F = PointwiseFunction;

// ... f_1(f_0(x)) for each element; x itself if there are no functions.
TensorId apply(GraphBuilder& builder,
               const std::string& name,
               TensorId x,
               const std::vector<F>& functions) {
  if (functions.empty()) return x;
  PointwiseProgram program;
  int value = program.input(0);
  for (const F function : functions) value = program.append(function, value);
  return ops::pointwise(builder, name, {x}, program);
}

TensorId pair(GraphBuilder& builder, const std::string& name, F function, TensorId a, TensorId b) {
  PointwiseProgram program;
  const int first = program.input(0), second = program.input(1);
  program.append(function, first, second);
  return ops::pointwise(builder, name, {a, b}, program);
}

TensorId square(GraphBuilder& builder, const std::string& name, TensorId x) {
  PointwiseProgram program;
  const int value = program.input(0);
  program.append(F::kMul, value, value);
  return ops::pointwise(builder, name, {x}, program);
}

// log(sum(e^(x - m))) + m, where m is the maximum, so that nothing overflows.
TensorId log_sum_exp(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     const std::vector<int>& axes) {
  const TensorId max = ops::reduce(builder, name + ".max", x, ReduceKind::kMax, axes, true);
  const TensorId below = pair(builder, name + ".below", F::kSub, x, max);
  const TensorId powers = apply(builder, name + ".powers", below, {F::kExp});
  const TensorId sum = ops::reduce(builder, name + ".sum", powers, ReduceKind::kSum, axes, true);
  return pair(builder, name, F::kAdd, apply(builder, name + ".log", sum, {F::kLog}), max);
}

// The reduction of the node; reduced axes have extent 1.
TensorId reduced(GraphBuilder& builder,
                 const Node& node,
                 const std::string& name,
                 TensorId x,
                 const std::vector<int>& axes) {
  const auto over = [&](TensorId of, ReduceKind kind) {
    return ops::reduce(builder, name + ".reduced", of, kind, axes, true);
  };
  const std::string& op = node.op;
  if (op == "ReduceMax") return over(x, ReduceKind::kMax);
  if (op == "ReduceMin") return over(x, ReduceKind::kMin);
  if (op == "ReduceMean") return over(x, ReduceKind::kMean);
  if (op == "ReduceProd") return over(x, ReduceKind::kProduct);
  if (op == "ReduceSum") return over(x, ReduceKind::kSum);
  if (op == "ReduceL1") return over(apply(builder, name + ".abs", x, {F::kAbs}), ReduceKind::kSum);
  if (op == "ReduceLogSum") return apply(builder, name, over(x, ReduceKind::kSum), {F::kLog});
  if (op == "ReduceLogSumExp") return log_sum_exp(builder, name, x, axes);
  const TensorId sum = over(square(builder, name + ".squares", x), ReduceKind::kSum);
  return op == "ReduceL2" ? apply(builder, name, sum, {F::kSqrt}) : sum;
}

// Converts i32 to the compute type; other tensors are unchanged.
TensorId as_numbers(Lowering& lowering, const std::string& name, TensorId x) {
  GraphBuilder& builder = lowering.builder();
  return builder[x].dtype == DType::kI32 ? apply(builder, name + ".numbers", x, {F::kIdentity}) : x;
}

// For each element, the sum of those before it (with reverse: after it), and of itself unless
// exclusive.
struct RunningSum {
  bool exclusive, reverse;
};

// Cumulative sums along the rows of x (rows, n), as a product with a triangular matrix of ones.
// Long rows are summed in blocks, to which the sums of the preceding blocks are added.
TensorId running_sums(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      const RunningSum& how) {
  constexpr int64_t kBlock = 256;
  const int64_t rows = builder.shape(x)[0], n = builder.shape(x)[1];
  if (n <= kBlock) {
    std::vector<float> ones;
    for (int64_t from = 0; from < n; ++from) {
      for (int64_t to = 0; to < n; ++to) {
        const bool before = how.reverse ? from > to : from < to;
        ones.push_back(before || (!how.exclusive && from == to) ? 1.0f : 0.0f);
      }
    }
    const TensorId matrix = builder.constant(name + ".ones", {n, n}, ones);
    return ops::batched_matmul(builder, name, x, matrix, false, false, 1);
  }
  const int64_t blocks = (n + kBlock - 1) / kBlock, padded = blocks * kBlock;
  if (padded > n) x = ops::pad(builder, name + ".padded", x, {0, 0}, {0, padded - n}, 0);
  x = ops::reshape(builder, name + ".blocks", x, {rows * blocks, kBlock});
  TensorId totals = ops::reduce(builder, name + ".totals", x, ReduceKind::kSum, {1}, true);
  totals = ops::reshape(builder, name + ".row", totals, {rows, blocks});
  TensorId before =
      running_sums(builder, name + ".before", totals, {.exclusive = true, .reverse = how.reverse});
  before = ops::reshape(builder, name + ".column", before, {rows * blocks, 1});
  TensorId y = pair(
      builder, name + ".sums", F::kAdd, running_sums(builder, name + ".within", x, how), before);
  y = ops::reshape(builder, name + ".whole_rows", y, {rows, padded});
  return padded == n ? y : ops::slice(builder, name, y, {0, 0}, {1, 1}, {rows, n});
}

TensorId as_integers(GraphBuilder& builder, const std::string& name, TensorId x) {
  PointwiseProgram same;
  same.input(0);
  return ops::pointwise(builder, name + ".whole", {x}, same, /*integers=*/true);
}

}  // namespace

// Keeps the layout of images, unless some but not all of their spatial axes are removed.
void lower_reduction(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const Value& to = lowering.value(node.output(0));
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const std::string name = lowering.name_of(node);
  std::vector<int> axes;
  for (const int64_t axis : list_of(lowering, node, "axes", 1)) axes.push_back(axis_of(axis, rank));
  if (axes.empty() && node.integer("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  const bool kept = to.extents.size() == rank;
  const auto pixels = std::ranges::count_if(axes, [](int axis) { return axis > 1; });
  const bool last =
      lowering.is_channels_last(node.input(0)) &&
      (kept || pixels == static_cast<int64_t>(rank) - 2 || std::ranges::count(axes, 1) > 0);
  TensorId y = kNoTensor;
  if (last && node.op == "ReduceMean" && rank == 4 && axes.size() == 2 && pixels == 2) {
    y = ops::global_avg_pool(builder, name, lowering.channels_last(node.input(0)));
    return lowering.set(node.output(0), ops::reshape(builder, name + ".extents", y, shape_of(to)));
  }
  if (last)
    for (int& axis : axes) axis = axis_in_last(axis, rank);
  const TensorId x = as_numbers(
      lowering, name, last ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0)));
  y = reduced(builder, node, name, x, axes);
  if (is_integer(to.type)) {
    lowering.require_fp32(node);
    y = as_integers(builder, name, y);
  }
  if (kept) return lowering.set(node.output(0), y, last);
  lowering.set(node.output(0), ops::reshape(builder, name + ".extents", y, shape_of(to)));
}

void lower_cum_sum(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& to = lowering.value(node.output(0));
  const Shape shape = shape_of(to);
  const int rank = shape.rank();
  const int axis = axis_of(constant_list(lowering, node, 1)[0], to.extents.size());
  const RunningSum how = {.exclusive = node.integer("exclusive", 0) != 0,
                          .reverse = node.integer("reverse", 0) != 0};
  std::vector<int> swapped(static_cast<size_t>(rank));
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[static_cast<size_t>(axis)], swapped.back());
  TensorId x = as_numbers(lowering, name, lowering.plain(node.input(0)));
  if (axis != rank - 1) x = ops::transpose(builder, name + ".last", x, swapped);
  const Shape order = builder.shape(x);
  x = ops::reshape(builder, name + ".rows", x, {order.rows(), order.columns()});
  x = running_sums(builder, name, x, how);
  x = ops::reshape(builder, name + ".extents", x, order);
  if (axis != rank - 1) x = ops::transpose(builder, name + ".back", x, swapped);
  if (is_integer(to.type)) {
    lowering.require_fp32(node);
    x = as_integers(builder, name, x);
  }
  lowering.set(node.output(0), x);
}

// The first or last index of the maximum. Positions are numbered from 1, from the other end; then
// the wanted one is the maximum over the positions that hold the maximal element.
void lower_arg_max(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Extents& from = lowering.value(node.input(0)).extents;
  const auto rank = static_cast<int>(from.size());
  const int axis = axis_of(node.integer("axis", 0), from.size());
  const bool last = node.integer("select_last_index", 0) != 0;
  const auto n = static_cast<float>(from[static_cast<size_t>(axis)]);
  if (constexpr int kExactInAll = 256; n > kExactInAll) lowering.require_fp32(node);
  const TensorId x = as_numbers(lowering, name, lowering.plain(node.input(0)));
  const ReduceKind kind = node.op == "ArgMax" ? ReduceKind::kMax : ReduceKind::kMin;
  const TensorId best = ops::reduce(builder, name + ".best", x, kind, {axis}, true);
  Shape along;
  for (int d = 0; d < rank; ++d) along.append(d == axis ? from[static_cast<size_t>(d)] : 1);
  std::vector<int32_t> count(static_cast<size_t>(n));
  std::iota(count.begin(), count.end(), 1);
  if (!last) std::reverse(count.begin(), count.end());
  PointwiseProgram holds, index;
  const int hit = holds.append(F::kEqual, holds.input(0), holds.input(1));
  holds.append(F::kMul, hit, holds.input(2));
  const TensorId counted = builder.constant(name + ".places", along, count);
  const TensorId held = ops::pointwise(builder, name + ".held", {x, best, counted}, holds);
  const TensorId nearest =
      ops::reduce(builder, name + ".nearest", held, ReduceKind::kMax, {axis}, true);
  if (last)
    index.append(F::kSub, index.input(0), index.constant(1));
  else
    index.append(F::kSub, index.constant(n), index.input(0));
  const TensorId y = ops::pointwise(builder, name, {nearest}, index, /*integers=*/true);
  lowering.set(
      node.output(0),
      ops::reshape(builder, name + ".extents", y, shape_of(lowering.value(node.output(0)))));
}

// Pools over all axes but the first two.
void lower_global_pool(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const TensorId x = lowering.channels_last(node.input(0));
  std::vector<int> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 1);
  TensorId y = kNoTensor;
  if (node.op == "GlobalMaxPool")
    y = ops::reduce(builder, name, x, ReduceKind::kMax, axes, false);
  else if (rank == 4)
    y = ops::global_avg_pool(builder, name, x);
  else
    y = ops::reduce(builder, name, x, ReduceKind::kMean, axes, false);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  lowering.set(node.output(0), ops::reshape(builder, name + ".extents", y, shape));
}

// The input of a node's softmax. With `boolean_mask`, the exporter wrote a boolean mask as 0 and
// the lowest number, which stands for -infinity.
TensorId softmax_input(Lowering& lowering,
                       const Node& node,
                       const TorchScores& torch,
                       bool boolean_mask) {
  if (!boolean_mask || torch.scores < 0) return lowering.plain(node.input(0));
  constexpr float kLow = -3e4f;  // above storable(lowest number) in 16 bits
  PointwiseProgram masked;
  const int scores = masked.input(0), mask = masked.input(1);
  const int hides = masked.append(F::kLess, mask, masked.constant(kLow));
  const int hidden = masked.constant(-std::numeric_limits<float>::infinity());
  masked.append(F::kWhere, hides, hidden, masked.append(F::kAdd, scores, mask));
  return ops::pointwise(lowering.builder(),
                        lowering.name_of(node) + ".masked",
                        {lowering.plain(torch.scores), lowering.plain(torch.mask)},
                        masked);
}

// Before opset 13, the softmax is over all axes from the given one on. In attention, a row that is
// hidden completely becomes 0 here: zeros for NaN after the softmax would have gradients of NaN.
void lower_softmax(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const bool log = node.op == "LogSoftmax", over_all = node.opset < 13;
  const ZerosForNan zeros = log ? ZerosForNan{} : zeros_for_nan(lowering, node.output(0));
  const TorchScores torch = log ? TorchScores{} : torch_scores(lowering, node);
  const bool or_zero = zeros.test != nullptr || torch.scores >= 0;
  const SoftmaxForm form = log       ? SoftmaxForm::kLogarithm
                           : or_zero ? SoftmaxForm::kSharesOrZero
                                     : SoftmaxForm::kShares;
  int output = node.output(0);
  if (zeros.test != nullptr) {
    output = zeros.choice->output(0);
    lowering.mark_fused(*zeros.test);
    lowering.mark_fused(*zeros.choice);
  }
  const Shape shape = shape_of(lowering.value(node.output(0)));
  const int rank = shape.rank();
  const int axis = axis_of(node.integer("axis", over_all ? 1 : -1), static_cast<size_t>(rank));
  if (!over_all && axis == 1 && lowering.is_channels_last(node.input(0)))
    return lowering.set(output,
                        ops::softmax(builder, name, lowering.channels_last(node.input(0)), form),
                        /*channels_last=*/true);
  TensorId x = softmax_input(lowering, node, torch, zeros.test != nullptr);
  if (over_all || axis == rank - 1) {
    int64_t columns = 1;
    for (int d = axis; d < rank; ++d) columns *= shape[d];
    const bool rows = axis != rank - 1;
    if (rows) x = ops::reshape(builder, name + ".rows", x, {shape.elements() / columns, columns});
    x = ops::softmax(builder, name, x, form);
    return lowering.set(output, rows ? ops::reshape(builder, name + ".extents", x, shape) : x);
  }
  std::vector<int> swapped(static_cast<size_t>(rank));
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[static_cast<size_t>(axis)], swapped.back());
  x = ops::softmax(builder, name, ops::transpose(builder, name + ".last", x, swapped), form);
  lowering.set(output, ops::transpose(builder, name + ".back", x, swapped));
}

}  // namespace lockstep::onnx
