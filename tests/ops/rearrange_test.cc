// Catches: an element taken from another place than the definition of a transpose, a slice, a
// broadcast, a tile or a padding says; a fill that is missed or that reaches too far; an element
// lost or moved at the border of a block, a word or a run; gradients that miss a reader, are
// counted twice, or are not zero where nothing reads; a parameter's gradient that is not added to
// that of another use.
#include "runtime/graph/ops/rearrange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls f(element of y, element of x, or -1 where it is filled) for all of a view.
template <typename F>
void each_element(const graph::View& view, F f) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    int64_t rest = i, from = view.offset;
    bool reads = true;
    for (int d = view.rank; d-- > 0;) {
      const graph::ViewDimension& dimension = view.dimensions[static_cast<size_t>(d)];
      const int64_t index = rest % dimension.extent, steps = index - dimension.begin;
      rest /= dimension.extent;
      reads = reads && steps >= 0 && index < dimension.end && steps % dimension.step == 0;
      from += steps / dimension.step * dimension.stride;
    }
    f(i, reads ? from : -1);
  }
}

template <typename T>
void rearrange_values(const graph::OpCall& call) {
  const graph::RearrangeForward<T> op{call};
  each_element(op.view, [&](int64_t to, int64_t from) {
    op.y[to] = from < 0 ? static_cast<T>(op.view.fill) : op.x[from];
  });
}

void reference_rearrange(const graph::OpCall& call) {
  if (call.input_dtype(graph::RearrangeIn::kX) == DType::kI32)
    return rearrange_values<int32_t>(call);
  rearrange_values<double>(call);
}

template <typename T>
void copy_values(const graph::OpCall& call) {
  const graph::Reshape<T> op{call};
  std::copy_n(op.x, op.n, op.y);
}

void reference_reshape(const graph::OpCall& call) {
  if (call.input_dtype(graph::RearrangeIn::kX) == DType::kI32) return copy_values<int32_t>(call);
  copy_values<double>(call);
}

void reference_backward(const graph::OpCall& call) {
  const graph::RearrangeBackward<double, double> op{call};
  each_element(op.view, [&](int64_t to, int64_t from) {
    double sum = op.accumulate ? op.d_x[to] : 0;
    for (int64_t term = 0; from >= 0 && term < op.terms.count(); ++term) {
      int64_t rest = term, at = from;
      for (int d = op.terms.rank; d-- > 0;) {
        at += rest % op.terms.loops[d].count * op.terms.loops[d].stride;
        rest /= op.terms.loops[d].count;
      }
      sum += op.d_y[at];
    }
    op.d_x[to] = sum;
  });
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kRearrange, "double", reference_rearrange},
    {graph::OpKind::kReshape, "double", reference_reshape},
    {graph::OpKind::kRearrangeBackward, "double", reference_backward},
};

// A copy is exact. Terms are below 1, so that a sum of n of them rounds by half an ulp of n at
// most, n times; then it is rounded to what is stored.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() != graph::OpKind::kRearrangeBackward) return {0, 0};
  const graph::RearrangeBackward<double, double> op{expected};
  const auto terms = static_cast<double>(op.terms.count()) + (op.accumulate ? 1 : 0);
  if (terms == 1) return {0, 0};
  return {terms * terms / 2, std::abs(op.d_x[i]) + terms * terms * 0x1p-23};
}

using Build = std::function<TensorId(graph::GraphBuilder& builder, TensorId x)>;

enum class Input { kActivation, kParameter, kSharedParameter, kWholeNumbers };

OpTest rearrange(const std::string& name,
                 const Shape& x_shape,
                 const Build& build,
                 Input input = Input::kActivation) {
  return {.name = name + " of " + to_string(x_shape),
          .build =
              [=](graph::GraphBuilder& builder) {
                if (input == Input::kActivation) {
                  build(builder, builder.activation_tensor("x", x_shape));
                } else if (input == Input::kWholeNumbers) {
                  build(builder, builder.input("x", x_shape, DType::kI32));
                } else {
                  const TensorId x = builder.parameter("x", x_shape, {}, true);
                  if (input == Input::kSharedParameter)
                    builder[x].gradient = builder.tensor(
                        "d_x", x_shape, DType::kF32, graph::Role::kParameterGradient);
                  build(builder, x);
                }
              },
          .reference = kReference,
          .cpu = cpu::kCpuRearrange,
          .cuda = cuda::kCudaRearrange,
          .tolerance = tolerance,
          .gradients = input == Input::kWholeNumbers ? size_t{0} : size_t{1},
          .value = [=](const std::string& tensor, int64_t i) -> double {
            if (input == Input::kWholeNumbers) return static_cast<double>(i * 77777 - 5);
            return std::fmod(
                       0.37 * static_cast<double>(i + 1) + 0.1 * static_cast<double>(tensor.size()),
                       1.9) -
                   0.95;
          }};
}

OpTest transpose(const Shape& x, const std::vector<int>& permutation) {
  return rearrange("transpose", x, [=](graph::GraphBuilder& builder, TensorId id) {
    return ops::transpose(builder, "y", id, permutation);
  });
}
OpTest slice(const Shape& x,
             const std::vector<int64_t>& starts,
             const std::vector<int64_t>& steps,
             const Shape& extents) {
  return rearrange(
      "slice to " + to_string(extents), x, [=](graph::GraphBuilder& builder, TensorId id) {
        return ops::slice(builder, "y", id, starts, steps, extents);
      });
}
OpTest expand(const Shape& x, const Shape& y, Input input = Input::kActivation) {
  return rearrange(
      "expansion to " + to_string(y),
      x,
      [=](graph::GraphBuilder& builder, TensorId id) { return ops::expand(builder, "y", id, y); },
      input);
}
OpTest tile(const Shape& x, const std::vector<int64_t>& repeats) {
  return rearrange("tile", x, [=](graph::GraphBuilder& builder, TensorId id) {
    return ops::tile(builder, "y", id, repeats);
  });
}
OpTest pad(const Shape& x,
           const std::vector<int64_t>& before,
           const std::vector<int64_t>& after,
           Input input = Input::kActivation) {
  return rearrange(
      "padding",
      x,
      [=](graph::GraphBuilder& builder, TensorId id) {
        return ops::pad(
            builder, "y", id, before, after, input == Input::kWholeNumbers ? -3 : 0.625f);
      },
      input);
}
OpTest select(const Shape& x, int axis, int64_t index) {
  return rearrange("selection", x, [=](graph::GraphBuilder& builder, TensorId id) {
    return ops::select(builder, "y", id, axis, index);
  });
}
// Every stride-th pixel of images, with channels of 0.625 before and after their own.
OpTest strided_and_padded(const Shape& x, int64_t stride, int64_t before, int64_t after) {
  return rearrange("strided and padded", x, [=](graph::GraphBuilder& builder, TensorId id) {
    std::vector<graph::ViewAxis> axes = {graph::ViewAxis::first(0, x[0]),
                                         graph::ViewAxis::first(1, (x[1] + stride - 1) / stride),
                                         graph::ViewAxis::first(2, (x[2] + stride - 1) / stride),
                                         graph::ViewAxis::first(3, before + x[3] + after)};
    axes[1].move = axes[2].move = stride;
    axes[3].begin = before;
    axes[3].end = before + x[3];
    return ops::rearrange(builder, "y", id, axes, 0.625f);
  });
}
OpTest first_columns(const Shape& x, int64_t columns, Input input) {
  return rearrange(
      "first columns",
      x,
      [=](graph::GraphBuilder& builder, TensorId id) {
        std::vector<graph::ViewAxis> axes;
        for (int d = 0; d < x.rank(); ++d)
          axes.push_back(graph::ViewAxis::first(d, d + 1 < x.rank() ? x[d] : columns));
        return ops::rearrange(builder, "y", id, axes);
      },
      input);
}
OpTest reshape(const Shape& x, const Shape& y, Input input = Input::kActivation) {
  return rearrange(
      "reshape",
      x,
      [=](graph::GraphBuilder& builder, TensorId id) { return ops::reshape(builder, "y", id, y); },
      input);
}
OpTest copy(const Shape& x, Input input) {
  return rearrange(
      "copy",
      x,
      [](graph::GraphBuilder& builder, TensorId id) {
        return ops::copy_parameter(builder, "y", id);
      },
      input);
}

// x holds its elements' numbers.
std::vector<double> numbered(OpTest test) {
  test.value = [](const std::string&, int64_t i) { return static_cast<double>(i); };
  return first_output_of_reference(test);
}

TEST(RearrangeTest, TakesWhatNumPyTakes) {
  using Values = std::vector<double>;
  EXPECT_EQ(numbered(transpose({2, 3}, {1, 0})), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(numbered(transpose({2, 2, 3}, {2, 0, 1})),
            (Values{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  EXPECT_EQ(numbered(slice({3, 4}, {0, 1}, {1, 2}, {2, 2})), (Values{1, 3, 5, 7}));
  EXPECT_EQ(numbered(slice({3, 4}, {2, 3}, {-2, -1}, {2, 4})), (Values{11, 10, 9, 8, 3, 2, 1, 0}));
  EXPECT_EQ(numbered(expand({2, 1}, {2, 2, 3})), (Values{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(numbered(expand({1}, {3})), (Values{0, 0, 0}));
  EXPECT_EQ(numbered(tile({2, 2}, {1, 2})), (Values{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(numbered(tile({2, 2}, {2, 1})), (Values{0, 1, 2, 3, 0, 1, 2, 3}));
  const double f = 0.625;
  EXPECT_EQ(numbered(pad({2, 2}, {1, 0}, {0, 1})), (Values{f, f, f, 0, 1, f, 2, 3, f}));
  EXPECT_EQ(numbered(pad({2, 3}, {0, -1}, {1, 1})), (Values{1, 2, f, 4, 5, f, f, f, f}));
  EXPECT_EQ(numbered(pad({2}, {3}, {-4})), (Values{f}));  // nothing of x is left
  EXPECT_EQ(numbered(select({2, 3, 2}, 1, 2)), (Values{4, 5, 10, 11}));
  EXPECT_EQ(numbered(select({2, 1}, 1, 0)), (Values{0, 1}));
  EXPECT_EQ(numbered(strided_and_padded({1, 3, 2, 1}, 2, 1, 1)), (Values{f, 0, f, f, 4, f}));
  EXPECT_EQ(numbered(reshape({2, 3}, {3, 2})), (Values{0, 1, 2, 3, 4, 5}));
}

TEST(RearrangeTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(transpose({2, 3, 2}, {2, 0, 1}));
  check_gradient_of_reference(slice({5, 7}, {4, 1}, {-2, 3}, {2, 2}));
  check_gradient_of_reference(slice({6, 3, 4}, {1, 2, 0}, {2, -1, 1}, {2, 2, 3}));
  check_gradient_of_reference(expand({3, 1, 2}, {2, 3, 4, 2}));
  check_gradient_of_reference(tile({2, 3, 2}, {2, 1, 3}));
  check_gradient_of_reference(pad({3, 4}, {1, -1}, {-1, 2}));
  check_gradient_of_reference(pad({2, 2}, {3, 0}, {-4, 0}));
  check_gradient_of_reference(select({2, 3, 2}, 1, 1));
  check_gradient_of_reference(strided_and_padded({2, 5, 4, 3}, 2, 1, 2));
  check_gradient_of_reference(reshape({3, 4}, {2, 6}));
  check_gradient_of_reference(copy({3, 4}, Input::kParameter));
  check_gradient_of_reference(expand({3, 1}, {2, 3, 4}, Input::kParameter));
}

TEST(RearrangeTest, Transposes) {
  check_on_all_devices(transpose({1, 1}, {1, 0}));
  check_on_all_devices(transpose({3, 5}, {1, 0}));
  check_on_all_devices(transpose({33, 40}, {1, 0}));
  check_on_all_devices(transpose({97, 67}, {1, 0}));
  check_on_all_devices(transpose({2, 5, 3, 8}, {0, 2, 1, 3}));    // heads
  check_on_all_devices(transpose({2, 17, 3, 20}, {0, 2, 1, 3}));  // heads
  check_on_all_devices(transpose({2, 18, 9, 7}, {0, 2, 3, 1}));   // NCHW to NHWC
  check_on_all_devices(transpose({2, 9, 7, 18}, {0, 3, 1, 2}));   // and back
  check_on_all_devices(transpose({3, 2, 4, 3, 2, 5}, {5, 3, 0, 2, 4, 1}));
  check_on_all_devices(transpose({2, 1, 3, 2, 1, 2, 3, 2}, {7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(RearrangeTest, Slices) {
  check_on_all_devices(slice({7}, {6}, {-1}, {7}));
  check_on_all_devices(slice({9, 40}, {2, 8}, {1, 1}, {5, 24}));
  check_on_all_devices(slice({9, 40}, {2, 7}, {3, 2}, {2, 15}));
  check_on_all_devices(slice({5, 4, 50}, {4, 0, 49}, {-2, 1, -3}, {3, 4, 17}));
  check_on_all_devices(slice({3, 4, 5}, {0, 2, 0}, {1, 1, 1}, {3, 1, 5}));
  check_on_all_devices(
      slice({2, 3, 2, 3, 2, 3}, {0, 0, 1, 2, 0, 0}, {1, 2, 1, -1, 1, 2}, {2, 2, 1, 3, 1, 2}));
}

TEST(RearrangeTest, Expansions) {
  check_on_all_devices(expand({1}, {17}));
  check_on_all_devices(expand({1}, {3001}));  // one sum, in parts
  check_on_all_devices(expand({19}, {700, 19}));
  check_on_all_devices(expand({24, 1}, {24, 33}));
  check_on_all_devices(expand({3, 1, 8}, {2, 3, 5, 8}));
  check_on_all_devices(expand({2, 1, 3, 1}, {2, 4, 3, 70}));
  check_on_all_devices(expand({1, 300}, {5, 300}));
  check_on_all_devices(expand({1, 1, 3, 1, 2}, {2, 2, 3, 4, 2}));
}

TEST(RearrangeTest, Tiles) {
  check_on_all_devices(tile({5}, {3}));
  check_on_all_devices(tile({4, 8}, {2, 3}));
  check_on_all_devices(tile({2, 3, 2, 2, 2, 2}, {2, 2, 1, 2, 3, 1}));
  check_on_all_devices(tile({2, 1, 2, 1, 2, 1, 2, 2}, {2, 2, 2, 2, 2, 2, 2, 2}));
}

TEST(RearrangeTest, Paddings) {
  check_on_all_devices(pad({5}, {2}, {3}));
  check_on_all_devices(pad({2, 16, 24}, {0, 1, 8}, {0, 2, 16}));
  check_on_all_devices(pad({2, 5, 7, 3}, {0, 1, 2, 0}, {0, 1, 1, 0}));
  check_on_all_devices(pad({4, 19}, {-1, 3}, {2, -5}));
  check_on_all_devices(pad({4, 4}, {5, 0}, {-6, 1}));
  check_on_all_devices(pad({2, 1, 2, 3, 2, 2}, {1, 0, 1, 0, 0, 1}, {0, 2, 0, 0, 1, 0}));
}

TEST(RearrangeTest, Selections) {
  check_on_all_devices(select({3, 5}, 1, 0));
  check_on_all_devices(select({3, 17, 40}, 1, 16));
  check_on_all_devices(select({4, 1, 9}, 1, 0));
}

// The shortcut of a residual network without parameters.
TEST(RearrangeTest, StridesAndPaddingsTogether) {
  check_on_all_devices(strided_and_padded({2, 5, 4, 3}, 2, 1, 2));
  check_on_all_devices(strided_and_padded({2, 5, 6, 8}, 2, 4, 4));
  check_on_all_devices(strided_and_padded({1, 4, 4, 16}, 2, 8, 8));
  check_on_all_devices(strided_and_padded({3, 3, 2, 16}, 1, 0, 5));
  check_on_all_devices(strided_and_padded({1, 7, 7, 264}, 3, 8, 0));
}

// Graphs of several lengths have the same ops.
TEST(RearrangeTest, IsNoReshapeEvenIfItTakesAll) {
  graph::GraphBuilder builder{graph::GraphOptions(graph::Purpose::kInference)};
  const TensorId x = builder.input("x", {4, 1}, DType::kI32);
  ops::rearrange(builder, "first", x, {graph::ViewAxis::first(0, 4), graph::ViewAxis::first(1, 1)});
  ops::select(builder, "column", x, 1, 0);
  for (const graph::Op& op : builder.graph().ops) EXPECT_EQ(op.kind, graph::OpKind::kRearrange);
}

TEST(RearrangeTest, ReshapesMayLieOverTheirInput) {
  for (const int64_t n : {1, 7, 16, 2048, 5003}) check_on_all_devices(reshape({n, 3}, {3, n}));
}

TEST(RearrangeTest, GradientsOfParametersAreFloats) {
  for (const Input input : {Input::kParameter, Input::kSharedParameter}) {
    check_on_all_devices(copy({1}, input));
    check_on_all_devices(copy({7, 43}, input));
    check_on_all_devices(reshape({4, 9}, {36}, input));
    check_on_all_devices(expand({5, 1, 20}, {3, 5, 2, 20}, input));
    check_on_all_devices(pad({5, 7}, {1, -1}, {-1, 2}, input));
  }
}

TEST(RearrangeTest, HasNoGradientOfAFrozenParameter) {
  OpTest test = copy({3, 4}, Input::kParameter);
  test.build = [build = test.build](graph::GraphBuilder& builder) {
    build(builder);
    builder[builder.graph().parameters[0]].frozen = true;
  };
  check_on_all_devices(test);
}

TEST(RearrangeTest, MovesWholeNumbers) {
  check_on_all_devices(pad({5, 8}, {1, 4}, {2, 4}, Input::kWholeNumbers));
  check_on_all_devices(reshape({3, 5}, {15}, Input::kWholeNumbers));
  for (const int64_t columns : {1, 151, 300})
    check_on_all_devices(first_columns({2, 3, 300}, columns, Input::kWholeNumbers));
  check_on_all_devices(rearrange(
      "transpose",
      {20, 19},
      [](graph::GraphBuilder& builder, TensorId x) {
        return ops::transpose(builder, "y", x, {1, 0});
      },
      Input::kWholeNumbers));
}

}  // namespace
}  // namespace lockstep::test
