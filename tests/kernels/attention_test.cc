// Attention against double-precision loops. Would catch: a mask that is one token off, a block of
// keys left out or taken twice, a running maximum or sum that is not carried from block to block,
// heads or samples mixed up, gradients accumulated onto what was in the output, results that depend
// on threads or vector width, and writes outside of the outputs.

#include "runtime/cpu/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/reference/attention_reference.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {
namespace {

using test::Guarded;
using test::kEps;

// Batch, time, heads, head size. Blocks are 64 tokens; 800 is more than a depth block of a product.
constexpr int64_t kSizes[][4] = {{1, 1, 1, 1},
                                 {2, 1, 3, 5},
                                 {1, 2, 1, 64},
                                 {2, 7, 2, 16},
                                 {1, 63, 1, 3},
                                 {1, 64, 2, 64},
                                 {2, 65, 1, 20},
                                 {1, 128, 1, 64},
                                 {1, 130, 2, 33},
                                 {1, 200, 1, 128},
                                 {1, 70, 1, 256},
                                 {1, 9, 1, 800}};

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> result;
  for (const auto& [batch, time, heads, size] : kSizes) {
    for (bool causal : {false, true}) result.push_back({batch, time, heads, size, causal});
  }
  return result;
}

std::string describe(const AttentionShape& s) {
  return "B " + std::to_string(s.batch) + " T " + std::to_string(s.time) + " H " +
         std::to_string(s.heads) + " D " + std::to_string(s.head_size) +
         (s.causal ? " causal" : " full");
}

struct Inputs {
  // Scores have a standard deviation of about `spread`^2 / 3.
  explicit Inputs(const AttentionShape& s, double spread = 2)
      : qkv(s.batch * s.time * 3 * s.heads * s.head_size, 1),
        d_out(s.batch * s.time * s.heads * s.head_size, 3) {
    test::fill_uniform(qkv, -spread, spread, 21);
    test::fill_uniform(d_out, -1, 1, 22);
  }
  Guarded<float> qkv, d_out;
};

struct Results {
  std::vector<float> out, log_sum_exp, d_qkv;
};

Results run(const AttentionShape& s, const Inputs& in) {
  Guarded<float> out(in.d_out.size(), 1), log_sum_exp(s.batch * s.heads * s.time, 2),
      d_qkv(in.qkv.size(), 1);
  // What is overwritten must not matter, not even when it is NaN.
  for (auto* output : {&out, &log_sum_exp, &d_qkv}) std::fill(output->begin(), output->end(), NAN);
  Guarded<unsigned char> workspace(attention_workspace_bytes(s, compute_threads()));
  attention_forward(s, in.qkv.data(), out.data(), log_sum_exp.data(), workspace.data());
  // Nothing that forward left behind may be used but its outputs.
  std::fill(workspace.begin(), workspace.end(), 0xFF);
  attention_backward(s,
                     in.d_out.data(),
                     in.qkv.data(),
                     out.data(),
                     log_sum_exp.data(),
                     d_qkv.data(),
                     workspace.data());
  return {out.copy(), log_sum_exp.copy(), d_qkv.copy()};
}

test::AttentionReference reference(const AttentionShape& s, const Inputs& in) {
  test::AttentionReference result{.batch = s.batch,
                                  .time = s.time,
                                  .heads = s.heads,
                                  .head_size = s.head_size,
                                  .causal = s.causal,
                                  .qkv = test::to_double(in.qkv)};
  result.forward();
  result.backward(test::to_double(in.d_out));
  return result;
}

TEST(Attention, MatchesTheReference) {
  for (const AttentionShape& s : shapes()) {
    const double spread = 2;
    const Inputs in(s, spread);
    const auto expected = reference(s, in);
    // A score is a chain of D roundings of sums up to D spread^2, over sqrt(D): its error is at
    // most D^1.5 spread^2 eps / 2, typically sqrt(D) times less; the weights inherit it as relative
    // error, and so do averages of v (up to `spread`) weighted with them. Sums over T tokens add
    // T / 2 eps more. Gradients are twice such sums of products of magnitude up to
    // D spread^2 / sqrt(D).
    const double score = (s.head_size + 8) * spread * spread * kEps;
    const double tolerance = 2 * spread * (score + 0.5 * s.time * kEps + 8 * kEps);
    const double largest_gradient = [&] {
      double largest = 1;
      for (double d : expected.d_qkv) largest = std::max(largest, std::abs(d));
      return largest;
    }();
    test::for_each_target([&](const std::string& target) {
      const Results actual = run(s, in);
      const std::string what = " of " + describe(s) + " on " + target;
      test::expect_close(actual.out, expected.out, tolerance, "out" + what);
      test::expect_close(actual.log_sum_exp, expected.log_sum_exp, tolerance, "log_sum_exp" + what);
      test::expect_close(
          actual.d_qkv, expected.d_qkv, 4 * tolerance * largest_gradient, "d_qkv" + what);
    });
  }
}

TEST(Attention, IsReproducible) {
  for (const AttentionShape& s : shapes()) {
    const Inputs in(s);
    test::expect_reproducible<float>([&] { return run(s, in).out; }, "out of " + describe(s));
    test::expect_reproducible<float>([&] { return run(s, in).log_sum_exp; },
                                     "log_sum_exp of " + describe(s));
    test::expect_reproducible<float>([&] { return run(s, in).d_qkv; }, "d_qkv of " + describe(s));
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  // exp(score) alone would be infinite: only the maximum keeps it finite.
  const AttentionShape s{1, 100, 1, 16, true};
  const Inputs in(s, 60);
  const auto expected = reference(s, in);
  const Results actual = run(s, in);
  // Scores up to 60^2 sqrt(16) are known to 16 eps times that; where two keys compete, the weights
  // have that error, and out is a mean of values up to 60.
  const double score_error = 16 * kEps * 60 * 60 * 4;
  test::expect_close(actual.out, expected.out, 2 * 60 * score_error, "out");
  test::expect_close(actual.log_sum_exp, expected.log_sum_exp, score_error, "log_sum_exp");
  for (float d : actual.d_qkv) ASSERT_TRUE(std::isfinite(d));
}

TEST(Attention, LaterTokensDoNotChangeEarlierOnes) {
  // To the bit, when causal.
  AttentionShape s{1, 150, 2, 24, true};
  Inputs in(s);
  const std::vector<float> before = run(s, in).out;
  const int64_t first_changed = 101, width = s.heads * s.head_size;
  for (int64_t i = first_changed * 3 * width; i < in.qkv.size(); ++i) in.qkv[i] *= -1.5f;
  const std::vector<float> after = run(s, in).out;
  for (int64_t i = 0; i < first_changed * width; ++i) ASSERT_EQ(before[i], after[i]) << i;
  bool changed = false;
  for (int64_t i = first_changed * width; i < in.d_out.size(); ++i)
    changed |= before[i] != after[i];
  EXPECT_TRUE(changed);
}

TEST(Attention, NanIsNotHidden) {
  const AttentionShape s{1, 80, 1, 8, false};
  for (int64_t position : {3, 11, 20}) {  // in q, k and v of the first token
    Inputs in(s);
    in.qkv[position] = std::nanf("");
    const Results actual = run(s, in);
    EXPECT_TRUE(std::isnan(actual.out[position % 8])) << position;
    EXPECT_EQ(std::isnan(actual.log_sum_exp[0]), position < 16) << position;
    EXPECT_TRUE(std::isnan(actual.d_qkv[0])) << position;
  }
}

TEST(Attention, ReferenceBackwardMatchesFiniteDifferences) {
  for (bool causal : {false, true}) {
    const AttentionShape s{2, 4, 2, 3, causal};
    const Inputs in(s, 1);
    auto attention = reference(s, in);
    const std::vector<double> d_out = test::to_double(in.d_out);
    test::expect_gradient(
        [&] {
          attention.forward();
          double sum = 0;
          for (size_t i = 0; i < d_out.size(); ++i) sum += d_out[i] * attention.out[i];
          return sum;
        },
        attention.qkv,
        attention.d_qkv,
        causal ? "causal d_qkv" : "full d_qkv");
  }
}

}  // namespace
}  // namespace lockstep::cpu
