// Catches: a formula that is not PyTorch's (decay coupled or not, Nesterov, the first step), a
// wrong bias correction, vector code that rounds differently from the scalar functions (a backend
// would then train to other bits), writes outside a slice.

#include "runtime/cpu/flat/optimizers.h"

#include <fmt/core.h>

#include <limits>

#include "tests/reference/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

struct Sgd {
  float momentum;
  bool nesterov;
  float weight_decay;
};
constexpr Sgd kSgds[] = {
    {0, false, 0}, {0, false, 0.01f}, {0.9f, false, 0.01f}, {0.9f, true, 0.01f}};

struct Adam {
  float weight_decay;
  bool decoupled;
};
constexpr Adam kAdams[] = {{0, false}, {0.1f, false}, {0.1f, true}};

exec::OptimizerUpdate make_adam(bool decoupled,
                                const AdamFields& fields,
                                const exec::UpdateStep& step) {
  if (decoupled) return exec::AdamwUpdate::make(fields, step);
  return exec::AdamUpdate::make(fields, step);
}

TEST(OptimizersTest, SgdFollowsTheReference) {
  for (const Sgd& kind : kSgds) {
    const int64_t n = 37, steps = 20;
    std::vector<float> p(n), m(n), g(n);
    test::fill_uniform(p, -1, 1, 1);
    std::vector<double> p64 = test::to_double(p), m64(n);
    std::vector<SgdReference> references(n,
                                         {.lr = 0.1f,
                                          .momentum = kind.momentum,
                                          .weight_decay = kind.weight_decay,
                                          .grad_scale = 0.5,
                                          .nesterov = kind.nesterov});
    for (int64_t t = 0; t < steps; ++t) {
      test::fill_uniform(g, -1, 1, 100 + t);
      cpu::optimizer_update(
          exec::SgdUpdate{0.1f, kind.momentum, kind.weight_decay, 0.5f, kind.nesterov},
          {.elements = n,
           .parameters = p.data(),
           .gradients = g.data(),
           .moments = {kind.momentum == 0 ? nullptr : m.data()}});
      for (int64_t i = 0; i < n; ++i) references[i].step(g[i], p64[i], m64[i]);
    }
    // Each step rounds p (below 4) and a moment (below 5) a few times by half an ulp; errors of the
    // moment act for 1 / (1 - 0.9) steps.
    test::expect_close(p, p64, steps * 10 * 4 * kEps, "parameters");
    if (kind.momentum != 0) test::expect_close(m, m64, steps * 5 * kEps, "moments");
  }
}

TEST(OptimizersTest, MovingAverageByHand) {
  std::vector<float> p = {1, -2, 4}, sums = {8, 8, 0};  // of 4 lanes
  cpu::optimizer_update(exec::MovingAverage{0.75f, 0.25f / 4},
                        {.elements = 3, .parameters = p.data(), .gradients = sums.data()});
  EXPECT_EQ(p, (std::vector<float>{1.25f, -1, 3}));
}

uint32_t bit_checksum(const std::vector<float>& x) {
  uint32_t sum = 0;
  for (float value : x) sum += std::bit_cast<uint32_t>(value);
  return sum;
}

// Catches: sums of other bits than those that an update reads and writes, and updates that differ
// where they are summed.
TEST(OptimizersTest, SumsWhatItReadsAndWrites) {
  const exec::UpdateStep step = {.lr = 0.01, .gradient_scale = 0.5, .number = 3};
  const AdamFields fields = {0.9, 0.999, 1e-8, 0.1};
  const exec::OptimizerUpdate updates[] = {exec::AdamwUpdate::make(fields, step),
                                           exec::LambDirection::make(fields, step),
                                           exec::SgdUpdate{0.1f, 0.9f, 0.1f, 0.5f, true},
                                           exec::MovingAverage{0.75f, 0.25f},
                                           exec::Exchange()};
  test::for_each_target([&](const std::string& target) {
    for (const exec::OptimizerUpdate& update : updates) {
      for (int64_t n : {1, 255, 1025, 40007}) {
        const bool two = std::visit(
            [](auto& u) { return exec::kTakesMoments<std::decay_t<decltype(u)>, 2>; }, update);
        const bool one = std::holds_alternative<exec::SgdUpdate>(update);
        struct Arrays {
          std::vector<float> g, p, m, v;
        } plain;
        for (auto* array : {&plain.g, &plain.p, &plain.m, &plain.v}) {
          array->resize(static_cast<size_t>(n));
          test::fill_uniform(*array, 0, 1, static_cast<uint64_t>(n) + array->size());
        }
        const Arrays before = plain;
        Arrays summed = plain;
        const auto slice = [&](Arrays& arrays) {
          return exec::OptimizerSlice{
              .elements = n,
              .parameters = arrays.p.data(),
              .gradients = arrays.g.data(),
              .moments = {one || two ? arrays.m.data() : nullptr, two ? arrays.v.data() : nullptr}};
        };
        exec::SliceChecksums checksums = {.gradients = {7, 7},
                                          .parameters = {7, 7}};  // of an update before
        exec::OptimizerSlice observed = slice(summed);
        observed.checksums = &checksums;
        cpu::optimizer_update(update, slice(plain));
        cpu::optimizer_update(update, observed);
        const auto expect = [&](const exec::ArrayChecksums& found,
                                const std::vector<float> Arrays::*array,
                                const char* name) {
          const std::string what = fmt::format("{} {} n={} of {}", target, name, n, update.index());
          EXPECT_EQ(summed.*array, plain.*array) << what;
          EXPECT_EQ(found.read, bit_checksum(before.*array)) << what;
          EXPECT_EQ(found.written, bit_checksum(plain.*array)) << what;
        };
        expect(checksums.gradients, &Arrays::g, "gradients");
        expect(checksums.parameters, &Arrays::p, "parameters");
        if (one || two) expect(checksums.moments[0], &Arrays::m, "first moments");
        if (two) expect(checksums.moments[1], &Arrays::v, "second moments");
      }
    }
  });
}

TEST(OptimizersTest, ExchangesEveryElement) {
  const int64_t n = 70003;
  Guarded<float> p(n, 1), g(n, 2);
  test::fill_uniform(p, -1, 1, 1);
  test::fill_uniform(g, -1, 1, 2);
  p[5] = -0.0f;
  g[n - 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> ps = p.copy(), gs = g.copy();
  cpu::optimizer_update(exec::Exchange(),
                        {.elements = n, .parameters = p.data(), .gradients = g.data()});
  test::expect_same_bits(ps, g, "what the parameters were");
  test::expect_same_bits(gs, p, "what the others were");
}

TEST(OptimizersTest, AdamFollowsTheReference) {
  for (const Adam& kind : kAdams) {
    const int64_t n = 37, steps = 20;
    std::vector<float> p(n), m(n), v(n), g(n);
    test::fill_uniform(p, -1, 1, 1);
    std::vector<double> p64 = test::to_double(p), m64(n), v64(n);
    const AdamReference reference{.lr = 0.01f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .epsilon = 1e-8f,
                                  .weight_decay = kind.weight_decay,
                                  .grad_scale = 0.5,
                                  .decoupled = kind.decoupled};
    for (int64_t t = 1; t <= steps; ++t) {
      test::fill_uniform(g, -1, 1, 100 + t);
      cpu::optimizer_update(make_adam(kind.decoupled,
                                      {0.9f, 0.999f, 1e-8f, kind.weight_decay},
                                      {.lr = 0.01f, .gradient_scale = 0.5, .number = t}),
                            {.elements = n,
                             .parameters = p.data(),
                             .gradients = g.data(),
                             .moments = {m.data(), v.data()}});
      for (int64_t i = 0; i < n; ++i) reference.step(t, g[i], p64[i], m64[i], v64[i]);
    }
    // p (below 2) rounds twice a step; each update, 0.01 times a ratio of at most about 1, has a
    // few eps from its operands, where a moment's own error, relative to the largest gradient, may
    // exceed the moment by a factor of ten.
    test::expect_close(p, p64, steps * (2 + 0.01 * 40) * kEps, "parameters");
    test::expect_close(m, m64, steps * kEps, "first moments");
    test::expect_close(
        v, v64, [&](int64_t i) { return steps * 2 * kEps * v64[i]; }, "second moments");
  }
}

TEST(OptimizersTest, LionFollowsTheReference) {
  const int64_t n = 37, steps = 20;
  std::vector<float> p(n), m(n), g(n);
  test::fill_uniform(p, -1, 1, 1);
  std::vector<double> p64 = test::to_double(p), m64(n);
  const LionReference reference{
      .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f, .grad_scale = 0.5};
  for (int64_t t = 1; t <= steps; ++t) {
    test::fill_uniform(g, -1, 1, 100 + t);
    g[3] = 0;  // whose moment, too, stays 0: it shrinks alone
    cpu::optimizer_update(
        exec::LionUpdate::make(LionFields{0.9f, 0.99f, 0.1f},
                               {.lr = 0.01f, .gradient_scale = 0.5, .number = t}),
        {.elements = n, .parameters = p.data(), .gradients = g.data(), .moments = {m.data()}});
    for (int64_t i = 0; i < n; ++i) reference.step(g[i], p64[i], m64[i]);
  }
  // Of 37 elements no mean of gradient and moment is so near 0 that rounding decides its sign. Then
  // p (below 2) and the moment (below 1) round a few times a step.
  test::expect_close(p, p64, steps * 4 * kEps, "parameters");
  test::expect_close(m, m64, steps * 2 * kEps, "moments");
  EXPECT_EQ(m[3], 0);
}

TEST(OptimizersTest, EqualsTheScalarFunctionsBitForBit) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {1, 15, 17, 1003}) {
      Guarded<float> p(n, 1), m(n, 2), v(n, 3), g(n, 1);
      test::fill_uniform(g, -1, 1, 1);
      const auto reset = [&] {
        test::fill_uniform(p, -1, 1, 2);
        test::fill_uniform(m, -1, 1, 3);
        test::fill_uniform(v, 0, 1, 4);
      };
      exec::OptimizerSlice slice{.elements = n,
                                 .parameters = p.data(),
                                 .gradients = g.data(),
                                 .moments = {m.data(), v.data()}};
      const auto check = [&](const exec::OptimizerUpdate& constants,
                             const std::function<void(float, float&, float&, float&)>& scalar) {
        reset();
        std::vector<float> ps = p.copy(), ms = m.copy(), vs = v.copy();
        for (int64_t i = 0; i < n; ++i) scalar(g[i], ps[i], ms[i], vs[i]);
        cpu::optimizer_update(constants, slice);
        test::expect_same_bits(ps, p, "parameters, " + target);
        test::expect_same_bits(ms, m, "first moments, " + target);
        test::expect_same_bits(vs, v, "second moments, " + target);
      };
      for (const Sgd& kind : kSgds) {
        const exec::SgdUpdate c{0.013f, kind.momentum, kind.weight_decay, 0.7f, kind.nesterov};
        slice.moments[0] = kind.momentum == 0 ? nullptr : m.data();
        check(c, [&](float gradient, float& parameter, float& moment, float&) {
          if (kind.momentum == 0) {
            c(gradient, parameter);
          } else {
            c(gradient, parameter, moment);
          }
        });
      }
      slice.moments[0] = m.data();
      for (const Adam& kind : kAdams) {
        const exec::OptimizerUpdate c =
            make_adam(kind.decoupled,
                      {0.9, 0.95, 1e-8, kind.weight_decay},
                      {.lr = 0.013, .gradient_scale = 0.7, .number = 3});
        check(c, [&](float gradient, float& parameter, float& first, float& second) {
          if (const auto* adam = std::get_if<exec::AdamUpdate>(&c)) {
            (*adam)(gradient, parameter, first, second);
          } else {
            std::get<exec::AdamwUpdate>(c)(gradient, parameter, first, second);
          }
        });
      }
      const exec::LionUpdate lion =
          exec::LionUpdate::make(LionFields{0.9, 0.99, 0.1}, {.lr = 0.013, .gradient_scale = 0.7});
      check(lion, [&](float gradient, float& parameter, float& moment, float&) {
        lion(gradient, parameter, moment);
      });
    }
  });
}

TEST(OptimizersTest, LambDirectionsEqualTheScalarFunctionBitForBit) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {1, 15, 17, 1003}) {
      Guarded<float> p(n, 1), m(n, 2), v(n, 3), g(n, 1);
      test::fill_uniform(p, -1, 1, 1);
      test::fill_uniform(m, -1, 1, 2);
      test::fill_uniform(v, 0, 1, 3);
      test::fill_uniform(g, -1, 1, 4);
      std::vector<float> ms = m.copy(), vs = v.copy(), gs = g.copy();
      const exec::LambDirection c = exec::LambDirection::make(AdamFields{0.9, 0.95, 1e-6, 0.1},
                                                              {.gradient_scale = 0.7, .number = 3});
      for (int64_t i = 0; i < n; ++i) c(gs[i], p[i], ms[i], vs[i]);
      cpu::optimizer_update(c,
                            {.elements = n,
                             .parameters = p.data(),
                             .gradients = g.data(),
                             .moments = {m.data(), v.data()}});
      test::expect_same_bits(gs, g, "directions, " + target);
      test::expect_same_bits(ms, m, "first moments, " + target);
      test::expect_same_bits(vs, v, "second moments, " + target);
    }
  });
}

TEST(OptimizersTest, Reproducible) {
  const int64_t n = 70001;
  std::vector<float> p(n), g(n);
  test::fill_uniform(p, -1, 1, 1);
  test::fill_uniform(g, -1, 1, 2);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> parameters(p), m(n), v(n);
        for (int64_t step : {1, 2, 3}) {
          cpu::optimizer_update(
              exec::AdamwUpdate::make(AdamFields{0.9, 0.999, 1e-8, 0.1},
                                      {.lr = 0.01, .gradient_scale = 0.5, .number = step}),
              {.elements = n,
               .parameters = parameters.data(),
               .gradients = g.data(),
               .moments = {m.data(), v.data()}});
        }
        return parameters;
      },
      "adamw");
}

}  // namespace
}  // namespace lockstep::test
