// Catches: a part in another place than behind the one before it, elements lost where parts meet or
// within words that two parts share, an empty part that moves the others, a gradient written where
// none is wanted.
#include "runtime/graph/ops/concat.h"

#include <gtest/gtest.h>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls f(input, element of it, element of y) for all elements.
template <typename F>
void each_element(const graph::ConcatAttributes& sizes, F f) {
  int64_t first = 0;
  for (int k = 0; k < sizes.count; ++k) {
    const int64_t end = sizes.ends[static_cast<size_t>(k)], width = end - first;
    for (int64_t row = 0; row < sizes.rows; ++row) {
      for (int64_t i = 0; i < width; ++i) f(k, row * width + i, row * sizes.columns() + first + i);
    }
    first = end;
  }
}

template <typename T>
void join(const graph::OpCall& call) {
  const graph::ConcatForward<T> op{call};
  each_element(op.sizes, [&](int k, int64_t from, int64_t to) { op.y[to] = op.x[k][from]; });
}

void reference_forward(const graph::OpCall& call) {
  if (call.input_dtype(graph::ConcatIn::kX) == DType::kI32) return join<int32_t>(call);
  join<double>(call);
}

void reference_backward(const graph::OpCall& call) {
  const graph::ConcatBackward<double> op{call};
  each_element(op.sizes, [&](int k, int64_t to, int64_t from) {
    if (op.d_x[k] != nullptr) op.d_x[k][to] = op.d_y[from];
  });
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kConcat, "double", reference_forward},
    {graph::OpKind::kConcatBackward, "double", reference_backward},
};

// Inputs of the extents of `first`, but for `extents` along `axis`.
OpTest concat(const Shape& first,
              const std::vector<int64_t>& extents,
              int axis,
              DType whole_numbers = DType::kF32) {
  const bool integers = whole_numbers == DType::kI32;
  return {.name = "concat of " + std::to_string(extents.size()) + " along " + std::to_string(axis) +
                  " of " + to_string(first),
          .build =
              [=](graph::GraphBuilder& builder) {
                std::vector<TensorId> inputs;
                for (const int64_t extent : extents) {
                  Shape shape;
                  const int dimension = axis < 0 ? axis + first.rank() : axis;
                  for (int d = 0; d < first.rank(); ++d)
                    shape.append(d == dimension ? extent : first[d]);
                  const std::string name = "x" + std::to_string(inputs.size());
                  inputs.push_back(integers ? builder.input(name, shape, DType::kI32)
                                            : builder.activation_tensor(name, shape));
                }
                ops::concat(builder, "y", inputs, axis);
              },
          .reference = kReference,
          .cpu = cpu::kCpuConcat,
          .cuda = cuda::kCudaConcat,
          .tolerance =
              [](const graph::OpCall&, graph::OutputName, int64_t) {
                return Tolerance{0, 0};
              },
          .gradients = integers ? size_t{0} : size_t{1},
          .value = [=](const std::string& tensor, int64_t i) -> double {
            const int64_t number = tensor.back() * 1000 + i;
            return integers ? static_cast<double>(number * 7001 - 3)
                            : static_cast<double>(number % 509) / 256 - 1;
          }};
}

TEST(ConcatTest, PutsOneBehindTheOther) {
  OpTest test = concat({2, 2, 1}, {2, 1}, 1);
  test.value = [](const std::string& tensor, int64_t i) -> double {
    return static_cast<double>(10 * (tensor.back() - '0') + i);
  };
  EXPECT_EQ(first_output_of_reference(test), (std::vector<double>{0, 1, 10, 2, 3, 11}));
}

TEST(ConcatTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(concat({2, 3, 2}, {1, 3, 2}, 1));
}

TEST(ConcatTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(concat({1}, {1}, 0));
  check_on_all_devices(concat({5}, {5, 1, 19}, 0));
  check_on_all_devices(concat({3, 4}, {4, 1, 7}, -1));
  check_on_all_devices(concat({4, 8, 16}, {8, 24, 16}, 2));  // in whole words
  check_on_all_devices(concat({2, 3, 5, 7}, {3, 1}, 1));
  check_on_all_devices(concat({2, 0, 3}, {0, 2, 0, 3, 0}, 1));  // empty parts
  check_on_all_devices(concat({2, 2, 3, 2, 2, 3}, {2, 5, 1}, 3));
  check_on_all_devices(concat({60, 33}, {33, 700}, 1));
  check_on_all_devices(concat({3, 1}, std::vector<int64_t>(64, 1), 1));
}

TEST(ConcatTest, MovesWholeNumbers) {
  check_on_all_devices(concat({3, 4}, {4, 8, 3}, 1, DType::kI32));
}

TEST(ConcatTest, ATensorMayStandTwice) {
  OpTest test = concat({3, 5}, {5}, 1);
  test.build = [](graph::GraphBuilder& builder) {
    const TensorId x = builder.activation_tensor("x", {3, 5});
    ops::concat(builder, "y", {x, x}, 1);
  };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
