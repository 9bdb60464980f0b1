// The bits of convolutions of bfloat16 and their gradients: those of sums of floats in the order
// that the headers state, rounded once. Catches: partial sums that are rounded; another order;
// what padding and neighbours leave in the copies in floats; tiles whose taps share a chunk.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/half.h"
#include "runtime/cpu/conv2d/conv2d_tiles.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/reference/conv2d.h"

namespace lockstep::cpu {
namespace {

std::vector<BFloat16> rounded(const Guarded<float>& x) {
  std::vector<BFloat16> halves(static_cast<size_t>(x.end() - x.begin()));
  std::transform(x.begin(), x.end(), halves.begin(), round_to<BFloat16>);
  return halves;
}

struct HalfInputs {
  explicit HalfInputs(const ConvInputs& in)
      : x(rounded(in.x)), w(rounded(in.w)), d_y(rounded(in.d_y)) {}
  std::vector<BFloat16> x, w, d_y;
};

struct Results {
  std::vector<float> y, d_x, d_w;
};

// The kernels of one way to multiply.
struct Kernels {
  decltype(&conv2d_workspace_bytes<BFloat16>) workspace_bytes;
  decltype(&conv2d_forward<BFloat16>) forward;
  decltype(&conv2d_backward_input<BFloat16>) backward_input;
  decltype(&conv2d_backward_weight<BFloat16>) backward_weight;
};
constexpr Kernels kPlain = {conv2d_workspace_bytes<BFloat16>,
                            conv2d_forward<BFloat16>,
                            conv2d_backward_input<BFloat16>,
                            conv2d_backward_weight<BFloat16>};
constexpr Kernels kTiles = {tiles::conv2d_workspace_bytes,
                            tiles::conv2d_forward,
                            tiles::conv2d_backward_input,
                            tiles::conv2d_backward_weight};

Results run(const Kernels& kernels,
            const graph::Conv2dShape& s,
            const HalfInputs& in,
            const float* bias) {
  Guarded<BFloat16> y(static_cast<int64_t>(in.d_y.size())), d_x(static_cast<int64_t>(in.x.size()));
  Guarded<float> d_w(static_cast<int64_t>(in.w.size()));
  // What is overwritten must not matter, not even when it is NaN.
  for (auto* output : {&y, &d_x}) std::fill(output->begin(), output->end(), BFloat16{0x7fff});
  std::fill(d_w.begin(), d_w.end(), NAN);
  Guarded<std::byte> workspace(kernels.workspace_bytes(s, compute_threads()));
  kernels.forward(
      {.shape = s, .x = in.x.data(), .w = in.w.data(), .epilogue = {.bias = bias}, .y = y.data()},
      workspace.data());
  const graph::Conv2dBackward<BFloat16> op = {.shape = s,
                                              .accumulate_weight = false,
                                              .accumulate_bias = false,
                                              .d_y = in.d_y.data(),
                                              .x = in.x.data(),
                                              .weight = in.w.data(),
                                              .d_x = d_x.data(),
                                              .d_weight = d_w.data(),
                                              .workspace = workspace.data()};
  kernels.backward_input(op);
  kernels.backward_weight(op);
  EXPECT_TRUE(workspace.intact());
  Results results = {
      std::vector<float>(in.d_y.size()), std::vector<float>(in.x.size()), d_w.copy()};
  const auto widen = [](BFloat16 half) { return to_float(half); };
  std::transform(y.begin(), y.end(), results.y.begin(), widen);
  std::transform(d_x.begin(), d_x.end(), results.d_x.begin(), widen);
  return results;
}

// One product of a sum. The sum's terms are ordered by `place`.
struct Term {
  int64_t place;
  float a, b;
};

float chain(const std::vector<Term>& terms) {
  float sum = 0;
  for (const Term& term : terms) sum = std::fma(term.a, term.b, sum);
  return sum;
}

// The order of bf16x3.h: `place` is the place in the depth.
float tile_sum(const std::vector<Term>& terms) {
  float sum = 0;
  for (size_t i = 0; i < terms.size();) {
    float even = 0, odd = 0;
    const int64_t chunk = terms[i].place / 32;
    for (; i < terms.size() && terms[i].place / 32 == chunk; ++i) {
      float& part = terms[i].place % 2 == 0 ? even : odd;
      part = std::fma(terms[i].a, terms[i].b, part);
    }
    sum += even + odd;
  }
  return sum;
}

// chunks: each tap begins a chunk of 32.
Results expected(const graph::Conv2dShape& s,
                 const HalfInputs& in,
                 const float* bias,
                 bool chunks,
                 float (*sum)(const std::vector<Term>& terms)) {
  std::vector<std::vector<Term>> y(in.d_y.size()), d_x(in.x.size()), d_w(in.w.size());
  const auto place = [&](int64_t tap, int64_t channel, int64_t channels) {
    return tap * (chunks ? round_up(channels, 32) : channels) + channel;
  };
  test::for_each_product(s, [&](int64_t out, int64_t pixel, int64_t weight) {
    const float of_y = to_float(in.d_y[out]), of_x = to_float(in.x[pixel]);
    const float of_w = to_float(in.w[weight]);
    const int64_t depth = s.group_channels(), output = out % s.outputs % s.group_outputs();
    const int64_t tap = weight / depth % (s.kernel_h * s.kernel_w);
    y[out].push_back({place(tap, weight % depth, depth), of_x, of_w});
    d_x[pixel].push_back({place(tap, output, s.group_outputs()), of_y, of_w});
    d_w[weight].push_back({out / s.outputs, of_y, of_x});
  });
  Results results = {
      std::vector<float>(y.size()), std::vector<float>(d_x.size()), std::vector<float>(d_w.size())};
  const auto sum_all = [&](std::vector<std::vector<Term>>& all, const auto& store) {
    for (size_t i = 0; i < all.size(); ++i) {
      std::ranges::stable_sort(all[i], {}, &Term::place);
      store(i, sum(all[i]));
    }
  };
  const auto stored = [](float x) { return to_float(round_to<BFloat16>(x)); };
  sum_all(y, [&](size_t i, float x) {
    results.y[i] = stored(x + bias[i % static_cast<size_t>(s.outputs)]);
  });
  sum_all(d_x, [&](size_t i, float x) { results.d_x[i] = stored(x); });
  sum_all(d_w, [&](size_t i, float x) { results.d_w[i] = x; });
  return results;
}

void expect_same(const Results& actual, const Results& expected, const graph::Conv2dShape& s) {
  test::expect_same_bits(actual.y, expected.y, "y of " + describe(s));
  test::expect_same_bits(actual.d_x, expected.d_x, "d_x of " + describe(s));
  test::expect_same_bits(actual.d_w, expected.d_w, "d_w of " + describe(s));
}

TEST(Conv2dBf16, DirectConvolutionsAreChainsOfFusedMultiplyAdds) {
  if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "this CPU has no fused multiply-add";
  for (const graph::Conv2dShape& s : conv2d_shapes()) {
    if (uses_winograd(s)) continue;
    const ConvInputs in(s);
    const HalfInputs halves(in);
    const Results chains = expected(s, halves, in.bias.data(), /*chunks=*/false, chain);
    for (const int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if (!test::cpu_has(target)) continue;
      test::ScopedTarget scope(target);
      expect_same(run(kPlain, s, halves, in.bias.data()), chains, s);
    }
  }
}

TEST(Conv2dBf16, TilesAreSumsOfChunks) {
  // A chunk that is not full; several blocks of taps; groups, dilation and unequal everything;
  // pixels that no output sees; a linear layer of the pixels.
  for (const graph::Conv2dShape& s : {square(2, 7, 48, 24, 3, 2, 1),
                                      square(1, 6, 96, 40, 3, 1, 1),
                                      test::shape(2, 7, 6, 64, 32, 3, 2, 2, 1, 2, 1, 1, 2, 2),
                                      square(2, 5, 32, 32, 1, 3),
                                      square(2, 5, 32, 48, 1)}) {
    ASSERT_TRUE(tiles::supports(s)) << describe(s);
    const ConvInputs in(s);
    const HalfInputs halves(in);
    expect_same(run(kTiles, s, halves, in.bias.data()),
                expected(s, halves, in.bias.data(), /*chunks=*/true, tile_sum),
                s);
  }
}

TEST(Conv2dBf16, TilesTakeWhatFillsThem) {
  EXPECT_TRUE(tiles::supports(square(1, 8, 64, 64, 3, 1, 1)));
  EXPECT_TRUE(tiles::supports(square(1, 8, 16, 16, 3, 2, 1)));
  EXPECT_TRUE(tiles::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 4)));
  EXPECT_FALSE(tiles::supports(square(1, 8, 3, 64, 7, 2, 3)));
  EXPECT_FALSE(tiles::supports(square(1, 8, 40, 64, 3, 1, 1)));
  EXPECT_FALSE(tiles::supports(square(1, 8, 64, 64, 3, 1, 1, 1, 64)));
}

}  // namespace
}  // namespace lockstep::cpu
