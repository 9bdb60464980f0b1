// Catches: a wrong recursion or gradient, repeated symbols without a blank between them, states or
// classes lost beyond a vector or a block, padding that counts or has a gradient, long samples that
// lose digits or underflow, NaN swallowed.
#include "runtime/graph/ops/ctc_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b) {
  const double largest = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return largest == kNone ? kNone
                          : largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// Rows of states of each frame, as in ctc_loss.h.
using Rows = std::vector<std::vector<double>>;

void reference(const graph::OpCall& call) {
  const graph::CtcLoss<double> op{call};
  std::fill_n(op.statistics, 4, 0.0);
  for (int64_t n = 0; n < op.samples; ++n) {
    const graph::CtcTarget target{op.targets + n * op.record, op.blank};
    const bool counts = n < call.lane().valid_rows && target.counts();
    const int64_t frames = counts ? target.frames() : 0;
    const int64_t states = counts ? target.states() : 0, first = n * op.frames * op.classes;
    const auto f = static_cast<size_t>(frames), c = static_cast<size_t>(op.classes);
    Rows log_p(f, std::vector<double>(c));
    for (size_t t = 0; t < f; ++t) {
      const double* const x = op.logits + first + static_cast<int64_t>(t * c);
      double sum = kNone;
      for (size_t k = 0; k < c; ++k) sum = log_sum(sum, x[k]);
      for (size_t k = 0; k < c; ++k) log_p[t][k] = x[k] - sum;
    }
    const auto emitted = [&](size_t t, int64_t s) {
      return log_p[t][static_cast<size_t>(target.class_of(s))];
    };
    const Rows none(f, std::vector<double>(static_cast<size_t>(states), kNone));
    Rows alpha = none, beta = none;
    for (size_t t = 0; t < f; ++t) {
      for (int64_t s = 0; s < states; ++s) {
        double& now = alpha[t][static_cast<size_t>(s)];
        const auto from = [&](int64_t other) {
          if (other >= 0) now = log_sum(now, alpha[t - 1][static_cast<size_t>(other)]);
        };
        if (t == 0) {
          now = s < 2 ? 0 : kNone;
        } else {
          from(s);
          from(s - 1);
          if (target.can_skip_to(s)) from(s - 2);
        }
        now += emitted(t, s);
      }
    }
    for (size_t t = f; t-- > 0;) {
      for (int64_t s = 0; s < states; ++s) {
        double& now = beta[t][static_cast<size_t>(s)];
        const auto to = [&](int64_t other) {
          if (other < states)
            now = log_sum(now, beta[t + 1][static_cast<size_t>(other)] + emitted(t + 1, other));
        };
        if (t + 1 == f) {
          now = s + 2 < states ? kNone : 0;
          continue;
        }
        to(s);
        to(s + 1);
        if (s + 2 < states && target.can_skip_to(s + 2)) to(s + 2);
      }
    }
    double log_likelihood = kNone;
    for (int64_t s = std::max<int64_t>(0, states - 2); f > 0 && s < states; ++s)
      log_likelihood = log_sum(log_likelihood, alpha[f - 1][static_cast<size_t>(s)]);
    if (f > 0) {
      op.statistics[0] -= log_likelihood;
      op.statistics[1] += 1;
    }
    if (op.gradient == nullptr) continue;
    std::fill_n(op.gradient + first, op.frames * op.classes, 0.0);
    for (size_t t = 0; t < f; ++t) {
      double* const d_x = op.gradient + first + static_cast<int64_t>(t * c);
      for (size_t k = 0; k < c; ++k) d_x[k] = std::exp(log_p[t][k]);
      for (int64_t s = 0; s < states; ++s)
        d_x[target.class_of(s)] -= std::exp(alpha[t][static_cast<size_t>(s)] +
                                            beta[t][static_cast<size_t>(s)] - log_likelihood);
      for (size_t k = 0; k < c; ++k) d_x[k] *= call.lane().gradient_scale;
    }
  }
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kCtcLoss, "double", reference}};

struct CtcCase {
  int64_t frames;
  std::vector<int32_t> symbols;
  bool counts = true;
};

struct Batch {
  std::vector<CtcCase> samples;
  int64_t frames, classes;
  int32_t blank = 0;
  double range = 3;    // of logits
  int64_t unused = 1;  // symbols of a record behind the longest text
};

OpTest loss(const Batch& batch) {
  size_t longest = 0;
  for (const CtcCase& sample : batch.samples) longest = std::max(longest, sample.symbols.size());
  const auto record = static_cast<int64_t>(longest) + batch.unused + graph::kCtcFirstSymbol;
  const auto n = static_cast<int64_t>(batch.samples.size());
  return {.name = "ctc_loss of (" + std::to_string(n) + ", " + std::to_string(batch.frames) + ", " +
                  std::to_string(batch.classes) + ")",
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {n, batch.frames, batch.classes});
                ops::ctc_loss(
                    builder, x, builder.input("targets", {n, record}, DType::kI32), batch.blank);
              },
          .reference = kReference,
          .cpu = cpu::kCpuCtcLoss,
          .cuda = cuda::kCudaCtcLoss,
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const graph::CtcLoss<double> op{expected};
            // A path rounds once a frame, relative to the numbers of its rows, which are kept near
            // 0 but differ by the logits' range.
            const double rounds = 8 + std::sqrt(static_cast<double>(batch.frames)) * batch.range;
            if (output == graph::LossOut::kGradient) {
              const double scale = expected.lane().gradient_scale, d_x = std::abs(op.gradient[i]);
              return {4 * rounds * scale, d_x};
            }
            return {i == 0 ? 4 * rounds * (static_cast<double>(n) + op.statistics[0]) : 0, 0};
          },
          .value = [=](const std::string& tensor, int64_t i) -> double {
            const double at = std::fmod(static_cast<double>(i + 1) * 0.61803398875, 1.0);
            if (tensor == "x") return batch.range * (2 * at - 1);
            const CtcCase& sample = batch.samples[static_cast<size_t>(i / record)];
            const int64_t place = i % record;
            if (place == graph::kCtcFrames) return static_cast<double>(sample.frames);
            if (place == graph::kCtcSymbols)
              return sample.counts ? static_cast<double>(sample.symbols.size()) : -1;
            const auto k = static_cast<size_t>(place - graph::kCtcFirstSymbol);
            return k < sample.symbols.size() ? sample.symbols[k] : -7;
          },
          .lane = {.valid_rows = n, .gradient_scale = 0.25f}};
}

std::vector<int32_t> text(int64_t length, int32_t classes, int32_t blank) {
  std::vector<int32_t> symbols;
  for (int64_t i = 0; i < length; ++i) {
    const auto symbol = static_cast<int32_t>((i * i + i / 3) % (classes - 1));
    symbols.push_back(symbol < blank ? symbol : symbol + 1);
  }
  return symbols;
}

// The loss of one sample by all classes^frames paths.
double loss_of_all_paths(const OpTest& test, const Batch& batch) {
  const CtcCase& sample = batch.samples[0];
  int64_t paths = 1;
  for (int64_t t = 0; t < sample.frames; ++t) paths *= batch.classes;
  double likelihood = 0;
  for (int64_t path = 0; path < paths; ++path) {
    std::vector<int32_t> read;
    int32_t before = batch.blank;
    double p = 1;
    for (int64_t t = 0, rest = path; t < sample.frames; ++t, rest /= batch.classes) {
      const auto now = static_cast<int32_t>(rest % batch.classes);
      double sum = 0;
      for (int64_t c = 0; c < batch.classes; ++c)
        sum += std::exp(test.value("x", t * batch.classes + c));
      p *= std::exp(test.value("x", t * batch.classes + now)) / sum;
      if (now != before && now != batch.blank) read.push_back(now);
      before = now;
    }
    if (read == sample.symbols) likelihood += p;
  }
  return -std::log(likelihood);
}

TEST(CtcLossTest, ReferenceAddsUpAllPaths) {
  for (const std::vector<int32_t>& symbols :
       {std::vector<int32_t>{}, {1}, {0, 1}, {1, 1}, {1, 0, 0}, {0, 1, 0, 1, 0}}) {
    const Batch batch = {.samples = {{5, symbols}}, .frames = 6, .classes = 3, .blank = 2};
    const OpTest test = loss(batch);
    EXPECT_NEAR(first_output_of_reference(test)[0], loss_of_all_paths(test, batch), 1e-12);
  }
}

TEST(CtcLossTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(
      loss({.samples = {{5, {1, 1}}, {3, {}}, {6, {3, 1, 2}}}, .frames = 6, .classes = 4}));
}

TEST(CtcLossTest, MatchesTheReferenceOnAllDevices) {
  for (const int32_t classes : {2, 5, 16, 37}) {
    const int32_t blank = classes / 2;
    const auto of = [&](int64_t length) { return text(length, classes, blank); };
    const Batch batch = {
        .samples =
            {{19, of(4)}, {1, of(1)}, {20, of(9)}, {2, {}}, {8, of(2), false}, {0, {}}, {7, of(3)}},
        .frames = 20,
        .classes = classes,
        .blank = blank,
        .unused = classes == 5 ? 0 : 3};
    OpTest test = loss(batch);
    for (const int64_t valid_rows : {0, 2, 7}) {
      test.lane.valid_rows = valid_rows;
      test.gradients = 1;
      check_on_all_devices(test);
      test.gradients = 0;  // of an evaluation
      check_on_all_devices(test);
    }
  }
}

// More states than a block has threads, and frames of which each is nearly impossible.
TEST(CtcLossTest, LongSamplesKeepTheirDigits) {
  check_on_all_devices(loss({.samples = {{150, text(66, 9, 0)}, {160, text(70, 9, 0)}},
                             .frames = 160,
                             .classes = 9,
                             .range = 12}));
}

TEST(CtcLossTest, NanReachesTheLoss) {
  OpTest test = loss({.samples = {{4, {1, 2}}}, .frames = 5, .classes = 3});
  const auto value = test.value;
  test.value = [=](const std::string& tensor, int64_t i) {
    return tensor == "x" && i == 7 ? std::nan("") : value(tensor, i);
  };
  check_on_all_devices(test);
}

// torch.nn.CTCLoss(reduction="sum") of PyTorch 2.15, in double precision, on the logits of `loss`.
TEST(CtcLossTest, EqualsPyTorch) {
  const Batch batch = {.samples = {{12, {1, 2, 2, 3}}, {9, {4}}, {5, {}}, {7, {3, 3, 3, 3}}},
                       .frames = 12,
                       .classes = 5};
  EXPECT_NEAR(first_output_of_reference(loss(batch))[0], 59.873650415248505, 1e-9);
}

}  // namespace
}  // namespace lockstep::test
