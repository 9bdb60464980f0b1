// Catches: a slice or an element taken from another place than its index says, negative indices
// that do not count from the end, indices outside that read beyond x, gradients of an index that is
// named twice lost or added in another order, slices that no index names left unwritten.
#include "runtime/graph/ops/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls f(element of y, element of x) for all of y.
template <typename F>
void each_element(const graph::GatherSizes& sizes, const int32_t* indices, bool of_elements, F f) {
  for (int64_t outer = 0; outer < sizes.outer; ++outer) {
    for (int64_t i = 0; i < sizes.count; ++i) {
      for (int64_t c = 0; c < sizes.inner; ++c) {
        const int64_t y = (outer * sizes.count + i) * sizes.inner + c;
        int64_t index = indices[of_elements ? y : i];
        if (index < 0) index += sizes.extent;
        index = std::clamp<int64_t>(index, 0, sizes.extent - 1);
        f(y, (outer * sizes.extent + index) * sizes.inner + c);
      }
    }
  }
}

template <typename T, bool kElements>
void take(const graph::OpCall& call) {
  const graph::GatherForward<T> op{call};
  each_element(op.sizes, op.indices, kElements, [&](int64_t y, int64_t x) { op.y[y] = op.x[x]; });
}

template <bool kElements>
void reference_forward(const graph::OpCall& call) {
  if (call.input_dtype(graph::GatherIn::kX) == DType::kI32) return take<int32_t, kElements>(call);
  take<double, kElements>(call);
}

template <bool kElements>
void reference_backward(const graph::OpCall& call) {
  const graph::GatherBackward<double> op{call};
  std::fill_n(op.d_x, call.output_shape(graph::GatherBackwardOut::kDX).elements(), 0.0);
  each_element(
      op.sizes, op.indices, kElements, [&](int64_t y, int64_t x) { op.d_x[x] += op.d_y[y]; });
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kGather, "double", reference_forward<false>},
    {graph::OpKind::kGatherBackward, "double", reference_backward<false>},
    {graph::OpKind::kGatherElements, "double", reference_forward<true>},
    {graph::OpKind::kGatherElementsBackward, "double", reference_backward<true>},
};

// A copy is exact. Terms are below 1, so that a sum of n of them rounds by half an ulp of n at
// most, n times; then it is rounded to what is stored.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() == graph::OpKind::kGather ||
      expected.kind() == graph::OpKind::kGatherElements)
    return {0, 0};
  const graph::GatherBackward<double> op{expected};
  const auto terms = static_cast<double>(op.sizes.count);
  return {terms * terms / 2, std::abs(op.d_x[i]) + terms * terms * 0x1p-23};
}

// Indices run through the extent in leaps, from both ends; `used` of it are named.
OpTest gather(const Shape& x,
              const Shape& indices,
              int axis,
              bool elements = false,
              int64_t used = 1 << 20,
              DType type = DType::kF32) {
  const int64_t extent = x[axis < 0 ? axis + x.rank() : axis];
  return {.name = (elements ? "elements " : "slices ") + to_string(indices) + " of " +
                  to_string(x) + " along " + std::to_string(axis),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId from = type == DType::kI32 ? builder.input("x", x, DType::kI32)
                                                          : builder.activation_tensor("x", x);
                const TensorId at = builder.input("indices", indices, DType::kI32);
                elements ? ops::gather_elements(builder, "y", from, at, axis)
                         : ops::gather(builder, "y", from, at, axis);
              },
          .reference = kReference,
          .cpu = cpu::kCpuGather,
          .cuda = cuda::kCudaGather,
          .tolerance = tolerance,
          .gradients = type == DType::kI32 ? size_t{0} : size_t{1},
          .value = [=](const std::string& tensor, int64_t i) -> double {
            if (tensor == "indices") {
              const int64_t index = (i * 7 + i / 3) % std::min(extent, used);
              return static_cast<double>(i % 2 == 0 ? index : index - extent);
            }
            if (type == DType::kI32) return static_cast<double>(i * 70001 - 9);
            return static_cast<double>(i * 97 % 509) / 256 - 1;
          }};
}

TEST(GatherTest, TakesWhatNumPyTakes) {
  OpTest test = gather({2, 3}, {2, 2}, 1);
  test.value = [](const std::string& tensor, int64_t i) -> double {
    constexpr double kIndices[] = {2, 0, -1, -3};
    return tensor == "indices" ? kIndices[i] : static_cast<double>(i);
  };
  EXPECT_EQ(first_output_of_reference(test), (std::vector<double>{2, 0, 2, 0, 5, 3, 5, 3}));
  test = gather({2, 3}, {2, 2}, 1, true);
  test.value = [](const std::string& tensor, int64_t i) -> double {
    constexpr double kIndices[] = {2, 0, -1, 1};
    return tensor == "indices" ? kIndices[i] : static_cast<double>(i);
  };
  EXPECT_EQ(first_output_of_reference(test), (std::vector<double>{2, 0, 5, 4}));
}

TEST(GatherTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(gather({2, 3, 2}, {4}, 1));
  check_gradient_of_reference(gather({2, 3, 2}, {2, 4, 2}, 1, true));
}

TEST(GatherTest, Slices) {
  check_on_all_devices(gather({1}, {1}, 0));
  check_on_all_devices(gather({7}, {}, 0));  // a scalar: the dimension goes
  check_on_all_devices(gather({11, 5}, {3, 4}, 0));
  check_on_all_devices(gather({3, 9, 16}, {20}, 1));
  check_on_all_devices(gather({4, 70}, {33}, -1));
  check_on_all_devices(gather({2, 3, 5, 2, 3, 4}, {2, 2}, 2));
  check_on_all_devices(gather({2, 5, 1030}, {6}, 1));            // several blocks of columns
  check_on_all_devices(gather({2, 40, 24}, {90}, 1, false, 3));  // long sums
}

TEST(GatherTest, Elements) {
  check_on_all_devices(gather({1}, {1}, 0, true));
  check_on_all_devices(gather({6, 40}, {6, 1}, 1, true));  // a class of each row
  check_on_all_devices(gather({9, 35}, {20, 35}, 0, true));
  check_on_all_devices(gather({2, 6, 3, 5}, {2, 8, 3, 5}, -3, true, 2));
  check_on_all_devices(gather({70, 300}, {70, 12}, 1, true));
}

TEST(GatherTest, IndicesOutsideAreReadAsTheNearestWithin) {
  for (const bool elements : {false, true}) {
    OpTest test = gather({4, 3}, elements ? Shape{5, 3} : Shape{5}, 0, elements);
    test.value = [](const std::string& tensor, int64_t i) -> double {
      constexpr double kIndices[] = {-2147483648.0, -5, 4, 2147483647.0, 1};
      return tensor == "indices" ? kIndices[i % 5] : static_cast<double>(i % 64) / 64;
    };
    check_on_all_devices(test);
  }
}

TEST(GatherTest, MovesWholeNumbers) {
  check_on_all_devices(gather({5, 8}, {7}, 0, false, 5, DType::kI32));
  check_on_all_devices(gather({5, 8}, {7, 8}, 0, true, 5, DType::kI32));
}

TEST(GatherTest, NoIndicesGiveZeroGradients) {
  check_on_all_devices(gather({5, 8}, {0}, 0));
  check_on_all_devices(gather({5, 8}, {5, 0}, 1, true));
}

}  // namespace
}  // namespace lockstep::test
