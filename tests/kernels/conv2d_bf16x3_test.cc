// Convolutions with the products of bf16x3.h against double-precision loops. Would catch: taps that
// read the wrong pixel at borders, with strides, with dilation or in a block that begins within the
// taps; padding that is not zero; groups that see each other; columns of one tap taken from
// another; an epilogue applied to a partial sum, or not at all; outputs that depend on the threads,
// on the instruction set or on the other images; accumulation where there should be none; pixels
// that no output sees left unwritten; writes outside of the outputs; sums less accurate than those
// of floats.

#include "runtime/cpu/conv2d/conv2d_bf16x3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conv2d_cases.h"

namespace lockstep::cpu {
namespace {

// Channels around the tiles (16, 32), depths around the blocks (16 and 48 chunks), rows around the
// pairs of row tiles (32) and the blocks of rows, columns around a panel (32) and what is kept of
// them (1024).
const std::vector<Conv2dShape>& supported_shapes() {
  static const std::vector<Conv2dShape> all = {
      square(1, 1, 32, 32, 1),
      square(3, 7, 64, 33, 1),
      square(2, 9, 48, 40, 1, 2),
      square(1, 8, 64, 64, 1, 3, 1),
      shape(2, 9, 7, 80, 35, 1, 1, 2, 3),
      square(1, 9, 32, 96, 3, 1, 1),
      square(2, 10, 48, 64, 3, 2, 1),
      square(1, 11, 112, 70, 3, 3, 1),
      square(1, 11, 32, 36, 3, 1, 2, 2),
      square(1, 12, 32, 48, 3, 2, 3, 2),
      square(2, 4, 528, 34, 3, 1, 1),
      square(1, 4, 32, 600, 3, 1, 1),
      square(1, 24, 128, 40, 3, 1, 1),
      square(1, 3, 32, 80, 3, 1, 4),
      shape(2, 17, 24, 32, 70, 3, 3, 1, 1, 1, 1),
      shape(1, 6, 9, 32, 32, 1, 5, 1, 1, 0, 2),
      shape(1, 9, 6, 32, 33, 4, 1, 2, 1, 1, 0),
      shape(1, 9, 14, 48, 32, 3, 2, 2, 3, 1, 0, 1, 2),
      square(1, 9, 64, 33, 5, 2, 2),
      square(2, 7, 96, 96, 3, 1, 1, 1, 2),
      square(1, 40, 32, 32, 1),
      square(1, 2, 32, 65, 3, 1, 0),  // no outputs
      square(1, 3, 48, 32, 1, 1, 2),  // some outputs see padding alone
  };
  return all;
}

// Roundings of a sum over so many elements, each by half an eps of what the magnitudes bound: six
// in a chunk, those of the chains within it, and what the products leave out.
double bound(int64_t chunks) { return (3.0 * static_cast<double>(chunks) + 10) * kEps; }
int64_t chunks_of(int64_t taps, int64_t depth) { return taps * ((depth + 31) / 32); }

std::vector<float> forward_bf16x3(const Conv2dShape& s, Inputs& in, const Epilogue& epilogue) {
  Guarded<float> y(in.d_y.size(), 3);
  std::fill(y.begin(), y.end(), NAN);
  Guarded<unsigned char> workspace(bf16x3::conv2d_forward_workspace_bytes(s, compute_threads()));
  bf16x3::conv2d_forward(
      {.shape = s, .x = in.x.data(), .w = in.w.data(), .epilogue = epilogue, .y = y.data()},
      workspace.data());
  return y.copy();
}

struct Gradients {
  std::vector<float> d_x, d_w;
};

Gradients backward(const Conv2dShape& s, Inputs& in, bool accumulate) {
  Guarded<float> d_x(in.x.size(), 1), d_w(in.w.size(), 2);
  for (auto* output : {&d_x, &d_w}) std::fill(output->begin(), output->end(), NAN);
  if (accumulate) test::fill_uniform(d_w, -1, 1, 15);
  Guarded<unsigned char> workspace(bf16x3::conv2d_workspace_bytes(s, compute_threads()));
  bf16x3::conv2d_backward_input(s, in.d_y.data(), in.w.data(), d_x.data(), workspace.data());
  bf16x3::conv2d_backward_weight(
      s, in.d_y.data(), in.x.data(), d_w.data(), accumulate, workspace.data());
  return {d_x.copy(), d_w.copy()};
}

TEST(Conv2dBf16x3, TakesWhatFillsTiles) {
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 32, 32, 3, 2, 1)));
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 128, 128, 3, 1, 1)));
  EXPECT_TRUE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 2)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 3, 64, 7, 2, 3)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 40, 64, 3, 1, 1)));
  EXPECT_FALSE(bf16x3::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 64)));
  for (const Conv2dShape& s : supported_shapes()) EXPECT_TRUE(bf16x3::supports(s)) << describe(s);
}

TEST(Conv2dBf16x3, ForwardIsClose) {
  for (const Conv2dShape& s : supported_shapes()) {
    Inputs in(s);
    const int64_t chunks = chunks_of(s.kernel_h * s.kernel_w, s.group_channels());
    for (Activation activation : {Activation::kNone, Activation::kRelu}) {
      const bool with_bias = activation == Activation::kRelu;
      const auto expected = reference(s, in, with_bias, activation);
      const Epilogue epilogue = {.bias = with_bias ? in.bias.data() : nullptr,
                                 .activation = activation};
      test::expect_close(
          forward_bf16x3(s, in, epilogue),
          expected.y,
          [&](int64_t i) { return bound(chunks) * (expected.magnitude[i] + 1); },
          "y of " + describe(s));
    }
  }
}

TEST(Conv2dBf16x3, BackwardIsClose) {
  for (const Conv2dShape& s : supported_shapes()) {
    Inputs in(s);
    for (bool accumulate : {false, true}) {
      auto expected = reference(s, in, false, Activation::kNone);
      expected.backward(test::to_double(in.d_y));
      if (accumulate) {
        std::vector<float> before(in.w.size());
        test::fill_uniform(before, -1, 1, 15);
        for (size_t i = 0; i < before.size(); ++i) expected.d_w[i] += before[i];
      }
      const Gradients actual = backward(s, in, accumulate);
      const double of_x = bound(chunks_of(s.kernel_h * s.kernel_w, s.group_outputs()));
      const double of_w = bound(chunks_of(1, s.out_pixels()));
      test::expect_close(
          actual.d_x,
          expected.d_x,
          [&](int64_t i) { return of_x * expected.d_x_magnitude[i]; },
          "d_x of " + describe(s));
      test::expect_close(
          actual.d_w,
          expected.d_w,
          [&](int64_t i) { return of_w * (expected.d_w_magnitude[i] + (accumulate ? 1 : 0)); },
          "d_w of " + describe(s));
    }
  }
}

TEST(Conv2dBf16x3, IsReproducible) {
  for (const Conv2dShape& s : supported_shapes()) {
    Inputs in(s);
    test::expect_reproducible<float>(
        [&] {
          return forward_bf16x3(s, in, {.bias = in.bias.data(), .activation = Activation::kRelu});
        },
        describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_x; }, describe(s));
    test::expect_reproducible<float>([&] { return backward(s, in, true).d_w; }, describe(s));
  }
}

TEST(Conv2dBf16x3, AnImageDoesNotDependOnTheOthers) {
  for (Conv2dShape s : supported_shapes()) {
    s.batch = 3;
    Inputs in(s);
    const std::vector<float> all = forward_bf16x3(s, in, {});
    Conv2dShape alone = s;
    alone.batch = 1;
    Inputs last(alone);
    std::copy(in.x.end() - last.x.size(), in.x.end(), last.x.begin());
    const std::vector<float> y = forward_bf16x3(alone, last, {});
    test::expect_same_bits(y, std::vector<float>(all.end() - y.size(), all.end()), describe(s));
  }
}

}  // namespace
}  // namespace lockstep::cpu
