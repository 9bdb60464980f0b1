// Catches: pairs taken from the wrong elements, angles of the wrong position or frequency, a
// gradient that turns forwards, heads or their ends turned that should be copied, or not copied, an
// angle that loses its accuracy at far positions, elements lost at the ends of heads, bits that
// depend on vectors and threads.
#include "runtime/graph/ops/rotary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// By wavelengths in tokens, as Llama 3 describes its own; the op goes by turns in a context.
double frequency_of(const graph::RotaryAttributes& of, int64_t time, int64_t pair) {
  const auto size = static_cast<double>(of.rotary_size);
  const auto context = static_cast<double>(of.original_context);
  double theta = of.theta;
  if (of.scaling == graph::RotaryScaling::kDynamicNtk) {
    const double tokens = std::max(static_cast<double>(time), context);
    theta *= std::pow(of.factor * tokens / context - (of.factor - 1), size / (size - 2));
  }
  const double frequency = 1 / std::pow(theta, static_cast<double>(2 * pair) / size);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (of.scaling == graph::RotaryScaling::kLinear) return frequency / of.factor;
  if (of.scaling != graph::RotaryScaling::kLlama3) return frequency;
  if (wavelength < context / of.high_freq_factor) return frequency;
  if (wavelength > context / of.low_freq_factor) return frequency / of.factor;
  const double smooth =
      (context / wavelength - of.low_freq_factor) / (of.high_freq_factor - of.low_freq_factor);
  return (1 - smooth) * frequency / of.factor + smooth * frequency;
}

void reference(const graph::OpCall& call) {
  const graph::Rotation<double> op{call};
  const graph::RotaryAttributes& of = op.attributes;
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t t = row % op.time;
    const auto position = static_cast<double>(op.positions != nullptr ? op.positions[row] : t);
    const double *x = op.x + row * op.width, sign = op.back ? -1 : 1;
    double* y = op.y + row * op.width;
    for (int64_t c = 0; c < op.width; ++c) y[c] = x[c];
    for (int64_t head = 0; head < of.rotated_heads; ++head) {
      for (int64_t i = 0; i < of.rotary_size / 2; ++i) {
        const double angle = sign * position * frequency_of(of, op.time, i);
        const int64_t begin = head * of.head_size;
        const int64_t a = begin + (of.interleaved ? 2 * i : i);
        const int64_t b = of.interleaved ? a + 1 : a + of.rotary_size / 2;
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
      }
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kRotary, "double", reference},
    {graph::OpKind::kRotaryBackward, "double", reference},
};

// Inputs are below 1 in size. A cosine, a sine and a product or two round by half an ulp each.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  return {2, std::abs(graph::Rotation<double>{expected}.y[i])};
}

struct RotaryCase {
  int64_t batch = 2, time = 5, heads = 4;
  graph::RotaryAttributes attributes;
  bool positions = false;
};

// As a batch of packed documents has them, and some that are far away, or before the first.
double position_of(int64_t i) {
  constexpr double kFar[] = {131071, 8191, -3, 0, 1000003};
  return i % 3 == 0 ? kFar[i / 3 % 5] : static_cast<double>(i % 7);
}

OpTest rotary(const RotaryCase& of) {
  const graph::RotaryAttributes& a = of.attributes;
  return {.name = "rotary " + std::to_string(a.rotary_size) + " of " + std::to_string(a.head_size) +
                  (a.interleaved ? ", interleaved" : "") + (of.positions ? ", positions" : "") +
                  ", scaling " + std::to_string(static_cast<int>(a.scaling)),
          .build =
              [=](graph::GraphBuilder& builder) {
                const Shape shape = {of.batch, of.time, of.heads * of.attributes.head_size};
                const TensorId x = builder.activation_tensor("x", shape);
                const TensorId positions =
                    of.positions ? builder.input("positions", {of.batch, of.time}, DType::kI32)
                                 : kNoTensor;
                ops::rotary(builder, "y", x, positions, of.attributes);
              },
          .reference = kReference,
          .cpu = cpu::kCpuRotary,
          .cuda = cuda::kCudaRotary,
          .tolerance = tolerance,
          .value = [](const std::string& tensor, int64_t i) -> double {
            if (tensor == "positions") return position_of(i);
            const uint32_t word = philox_word({.seed = tensor.size()}, static_cast<uint64_t>(i));
            return 2 * uniform_from_word(word) - 1;
          }};
}

// Three of four heads turn.
graph::RotaryAttributes heads_of(int64_t head_size, int64_t rotary_size, bool interleaved) {
  return {.head_size = head_size,
          .rotated_heads = 3,
          .rotary_size = rotary_size,
          .interleaved = interleaved};
}

TEST(RotaryTest, ReferenceMatchesFiniteDifferences) {
  for (const bool interleaved : {false, true}) {
    for (const bool positions : {false, true})
      check_gradient_of_reference(
          rotary({.attributes = heads_of(8, 6, interleaved), .positions = positions}));
  }
}

TEST(RotaryTest, MatchesTheReferenceOnAllDevices) {
  struct Sizes {
    int64_t head, rotary;
  };
  for (const Sizes sizes : {Sizes{2, 2}, {6, 6}, {7, 4}, {34, 34}, {64, 64}, {80, 32}, {64, 30}}) {
    for (const bool interleaved : {false, true}) {
      for (const bool positions : {false, true})
        check_on_all_devices(rotary({.attributes = heads_of(sizes.head, sizes.rotary, interleaved),
                                     .positions = positions}));
    }
  }
}

TEST(RotaryTest, OneTokenAndOneHead) {
  for (const bool interleaved : {false, true}) {
    RotaryCase one = {
        .batch = 1, .time = 1, .heads = 1, .attributes = heads_of(16, 16, interleaved)};
    one.attributes.rotated_heads = 1;
    check_on_all_devices(rotary(one));
    one.positions = true;
    check_on_all_devices(rotary(one));
  }
}

// Of q and k alone, without v.
TEST(RotaryTest, AllHeadsTurn) {
  RotaryCase all = {.heads = 3, .attributes = heads_of(32, 32, false)};
  check_on_all_devices(rotary(all));
  all.attributes = heads_of(24, 8, true);
  check_on_all_devices(rotary(all));
}

TEST(RotaryTest, LosesNoRowsBetweenThreadsAndBlocks) {
  check_on_all_devices(rotary({.batch = 3, .time = 171, .attributes = heads_of(16, 16, false)}));
  RotaryCase many = {.batch = 2, .time = 701, .attributes = heads_of(64, 48, true)};
  OpTest test = rotary(many);  // several grains of work
  test.cuda = {};
  check_on_all_devices(test);
  many.positions = true;
  test = rotary(many);
  test.cuda = {};
  check_on_all_devices(test);
}

TEST(RotaryTest, Scalings) {
  for (const graph::RotaryScaling scaling : {graph::RotaryScaling::kLinear,
                                             graph::RotaryScaling::kDynamicNtk,
                                             graph::RotaryScaling::kLlama3}) {
    RotaryCase scaled = {.time = 37, .attributes = heads_of(32, 32, false), .positions = true};
    scaled.attributes.scaling = scaling;
    scaled.attributes.factor = 8;
    for (const int64_t context : {16, 37, 8192}) {  // shorter than T, T and longer
      scaled.attributes.original_context = context;
      scaled.attributes.theta = 500000;
      check_on_all_devices(rotary(scaled));
    }
  }
}

// Against numbers worked out apart from both formulas' code here: Llama 3.1's frequencies of pairs
// that keep theirs, lie in the passage and are slowed down.
TEST(RotaryTest, FrequenciesOfLlama3) {
  graph::RotaryAttributes llama = heads_of(128, 128, false);
  llama.theta = 500000;
  llama.scaling = graph::RotaryScaling::kLlama3;
  llama.factor = 8;
  const std::pair<int64_t, double> expected[] = {{0, 1.0},
                                                 {1, 0.8146172338565447},
                                                 {28, 0.0032114459947525913},
                                                 {29, 0.002166570763503359},
                                                 {34, 0.00017850781276799638},
                                                 {35, 9.556212353964683e-05},
                                                 {63, 3.068925988914511e-07}};
  for (const auto& [pair, frequency] : expected)
    EXPECT_NEAR(graph::rotary_frequency(llama, 9000, pair) / frequency, 1, 1e-12) << pair;
}

// The same of a context of 2048 tokens, stretched by 4, at 6000.
TEST(RotaryTest, FrequenciesOfDynamicNtk) {
  graph::RotaryAttributes dynamic = heads_of(64, 64, false);
  dynamic.scaling = graph::RotaryScaling::kDynamicNtk;
  dynamic.factor = 4;
  dynamic.original_context = 2048;
  const std::pair<int64_t, double> expected[] = {
      {0, 1.0}, {1, 0.6992987741522716}, {16, 0.0032704255798254615}, {31, 1.529486947284099e-05}};
  for (const auto& [pair, frequency] : expected)
    EXPECT_NEAR(graph::rotary_frequency(dynamic, 6000, pair) / frequency, 1, 1e-12) << pair;
  EXPECT_NEAR(graph::rotary_frequency(dynamic, 2000, 16), 0.01, 1e-14);  // within the context
}

// What attention is to see: products of turned q and k depend on the distance of their positions
// alone, however far out they are.
TEST(RotaryTest, ProductsFollowFromDistances) {
  RotaryCase of = {.batch = 1, .time = 4, .heads = 2, .attributes = heads_of(16, 16, false)};
  of.attributes.rotated_heads = 2;
  of.positions = true;
  OpTest test = rotary(of);
  test.value = [](const std::string& tensor, int64_t i) -> double {
    constexpr double kPositions[] = {0, 7, 5000, 5007};
    return tensor == "positions" ? kPositions[i] : std::sin(static_cast<double>(i % 32 + 1));
  };
  const std::vector<double> y = first_output_of_reference(test);
  const auto product = [&](int64_t of_q, int64_t of_k) {
    double sum = 0;
    for (int64_t c = 0; c < 16; ++c)
      sum += y[static_cast<size_t>(of_q * 32 + c)] * y[static_cast<size_t>(of_k * 32 + 16 + c)];
    return sum;
  };
  EXPECT_NEAR(product(1, 0), product(3, 2), 1e-9);
  EXPECT_GT(std::abs(product(1, 0) - product(0, 0)), 1e-3);
}

// A diverged run must show, and in the pair alone that it has reached.
TEST(RotaryTest, HidesNoNaN) {
  for (const bool interleaved : {false, true}) {
    OpTest test = rotary({.attributes = heads_of(18, 14, interleaved)});
    test.value = [](const std::string& tensor, int64_t i) {
      const bool nan =
          tensor != "positions" && (i == 3 || i == 13 || i == 17 || i == 71 || i == 98);
      return nan ? std::nan("") : 0.5;
    };
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
