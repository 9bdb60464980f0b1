// Catches: RMSprop, Adagrad and AMSGrad that are not PyTorch's, with any set of moments; a third
// moment that is not summed, rounded or cut as the other two are; vector code that rounds
// differently from the scalar functions.

#include <cmath>

#include "runtime/cpu/flat/optimizers.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

constexpr AmsgradReference kAdam = {{.lr = 0.05,
                                     .beta1 = 0.8,
                                     .beta2 = 0.7,
                                     .epsilon = 1e-3,
                                     .weight_decay = 0.1,
                                     .grad_scale = 1,
                                     .decoupled = false}};
constexpr RmspropReference kRmsprop = {.lr = 0.05,
                                       .alpha = 0.9,
                                       .epsilon = 1e-3,
                                       .weight_decay = 0.1,
                                       .momentum = 0,
                                       .grad_scale = 1,
                                       .centred = false};
constexpr AdagradReference kAdagrad = {
    .lr = 0.2, .lr_decay = 0.1, .epsilon = 1e-3, .weight_decay = 0.1, .grad_scale = 1};
constexpr double kFirstSum = 0.3;

AmsgradReference adam_of(bool decoupled) {
  AmsgradReference adam = kAdam;
  adam.adam.decoupled = decoupled;
  return adam;
}

RmspropReference rmsprop_of(double momentum, bool centred) {
  RmspropReference rmsprop = kRmsprop;
  rmsprop.momentum = momentum;
  rmsprop.centred = centred;
  return rmsprop;
}

// An update, its reference and what PyTorch 2.15.0 makes in double precision in 20 steps of the
// parameters 1 and -0.5 with the gradients (1 + t / 10) sin(1.3 t + i), by torch.optim.RMSprop,
// Adagrad(initial_accumulator_value=0.3), Adam(amsgrad=True) and AdamW(amsgrad=True).
struct Case {
  std::string name;
  int moments;
  double first_moment;
  std::function<exec::OptimizerUpdate(const exec::UpdateStep&)> make;
  std::function<void(int64_t t, double g, double& p, double& a, double& b, double& c)> step;
  double lr;
  double parameters[2];
};

Case rmsprop(const std::string& name, double momentum, bool centred, double first, double second) {
  const RmspropReference reference = rmsprop_of(momentum, centred);
  const int moments = 1 + (momentum > 0 ? 1 : 0) + (centred ? 1 : 0);
  return {
      name,
      moments,
      0,
      [=](const exec::UpdateStep& step) {
        return exec::RmspropUpdate::make(RmspropFields{0.9, 1e-3, 0.1, momentum, centred}, step);
      },
      [=](int64_t, double g, double& p, double& a, double& b, double& c) {
        double unused = 0;
        if (momentum > 0) {
          reference.step(g, p, a, b, c);
        } else {
          reference.step(g, p, a, unused, b);
        }
      },
      reference.lr,
      {first, second}};
}

Case adam(const std::string& name, bool decoupled, double first, double second) {
  const AmsgradReference reference = adam_of(decoupled);
  return {name,
          3,
          0,
          [=](const exec::UpdateStep& step) -> exec::OptimizerUpdate {
            const AdamFields fields = {0.8, 0.7, 1e-3, 0.1};
            if (decoupled) return exec::AdamwUpdate::make(fields, step);
            return exec::AdamUpdate::make(fields, step);
          },
          [=](int64_t t, double g, double& p, double& a, double& b, double& c) {
            reference.step(t, g, p, a, b, c);
          },
          reference.adam.lr,
          {first, second}};
}

std::vector<Case> cases() {
  return {
      rmsprop("rmsprop", 0, false, 0.8004138104496373, -0.524922282367664),
      rmsprop("rmsprop, momentum", 0.8, false, 0.23755727818792904, -0.3614366513908772),
      rmsprop("rmsprop, centred", 0, true, 0.7784347131499597, -0.5258271227705422),
      rmsprop("rmsprop, both", 0.8, true, 0.15522516932425195, -0.36312532815356185),
      adam("adam, amsgrad", false, 0.850698494567383, -0.49035370666638467),
      adam("adamw, amsgrad", true, 0.8195417580297946, -0.4747644597162251),
      {"adagrad",
       1,
       kFirstSum,
       [](const exec::UpdateStep& step) {
         return exec::AdagradUpdate::make(AdagradFields{0.1, 1e-3, 0.1}, step);
       },
       [](int64_t t, double g, double& p, double& a, double&, double&) {
         kAdagrad.step(t, g, p, a);
       },
       kAdagrad.lr,
       {0.7988711822193365, -0.4987765543296201}},
  };
}

double gradient_of(int64_t t, int64_t i) {
  const auto step = static_cast<double>(t);
  return std::sin(1.3 * step + static_cast<double>(i)) * (1 + step / 10);
}

TEST(AdaptiveOptimizersTest, ReferencesArePyTorchs) {
  for (const Case& kind : cases()) {
    const double begin[2] = {1, -0.5};
    for (int64_t i = 0; i < 2; ++i) {
      double p = begin[i], a = kind.first_moment, b = 0, c = 0;
      for (int64_t t = 1; t <= 20; ++t) kind.step(t, gradient_of(t, i), p, a, b, c);
      EXPECT_NEAR(p, kind.parameters[i], 1e-13) << kind.name;
    }
  }
}

// The arrays of a run of an update; Moment is float or BFloat16.
template <typename Moment>
struct Arrays {
  Arrays(int64_t n, double first_moment)
      : p(n, 1),
        g(n, 1),
        moments{Guarded<Moment>(n, 1), Guarded<Moment>(n, 1), Guarded<Moment>(n, 1)} {
    for (int64_t i = 0; i < n; ++i) {
      p[i] = 1.0f - 1.5f * static_cast<float>(i % 2);
      for (Guarded<Moment>& moment : moments) moment[i] = round_to<Moment>(0.0f);
      moments[0][i] = round_to<Moment>(static_cast<float>(first_moment));
    }
  }
  void set_gradients(int64_t t) {
    for (int64_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(gradient_of(t, i));
  }
  exec::OptimizerSlice slice(int kept, const exec::MomentRounding* rounding = nullptr) {
    exec::OptimizerSlice slice = {
        .elements = p.size(), .parameters = p.data(), .gradients = g.data()};
    for (int m = 0; m < kept; ++m)
      slice.moments[static_cast<size_t>(m)] = moments[static_cast<size_t>(m)].data();
    slice.rounding = rounding;
    if (rounding != nullptr) slice.moment_dtype = DType::kBF16;
    slice.parameter = 4;
    slice.first_element = 100;
    return slice;
  }
  Guarded<float> p, g;
  Guarded<Moment> moments[3];
};

TEST(AdaptiveOptimizersTest, FollowTheReferences) {
  for (const Case& kind : cases()) {
    const int64_t n = 37, steps = 20;
    Arrays<float> arrays(n, kind.first_moment);
    std::vector<double> p(n), a(n, kind.first_moment), b(n), c(n);
    for (int64_t i = 0; i < n; ++i) p[i] = arrays.p[i];
    for (int64_t t = 1; t <= steps; ++t) {
      arrays.set_gradients(t);
      cpu::optimizer_update(kind.make({.lr = kind.lr, .number = t}), arrays.slice(kind.moments));
      for (int64_t i = 0; i < n; ++i) kind.step(t, arrays.g[i], p[i], a[i], b[i], c[i]);
    }
    // A step of up to 0.05 times some units has tens of eps of its own, mostly from averages of
    // squares, which are at least some hundredths; then p rounds.
    test::expect_close(arrays.p, p, steps * 40 * kEps, kind.name);
    test::expect_close(arrays.moments[0], a, steps * 100 * kEps, kind.name + ", first moment");
    if (kind.moments > 1)
      test::expect_close(arrays.moments[1], b, steps * 100 * kEps, kind.name + ", second moment");
    if (kind.moments > 2)
      test::expect_close(arrays.moments[2], c, steps * 100 * kEps, kind.name + ", third moment");
  }
}

template <typename Update>
void update_scalars(
    const Update& update, int moments, float g, float& p, float& a, float& b, float& c) {
  if constexpr (exec::kTakesMoments<Update, 1>)
    if (moments == 1) return update(g, p, a);
  if constexpr (exec::kTakesMoments<Update, 2>)
    if (moments == 2) return update(g, p, a, b);
  if constexpr (exec::kTakesMoments<Update, 3>)
    if (moments == 3) return update(g, p, a, b, c);
}

template <typename Moment>
void check_scalars(const Case& kind, int64_t n, const std::string& what) {
  const exec::MomentRounding rounding = {99, 12};
  const exec::RoundingKey key = exec::rounding_key(rounding, 4);
  const bool rounds = !std::is_same_v<Moment, float>;
  Arrays<Moment> vectors(n, kind.first_moment), scalars(n, kind.first_moment);
  exec::SliceChecksums checksums;
  for (int64_t t = 1; t <= 3; ++t) {
    const exec::OptimizerUpdate update = kind.make({.lr = kind.lr, .number = t});
    vectors.set_gradients(t);
    exec::OptimizerSlice slice = vectors.slice(kind.moments, rounds ? &rounding : nullptr);
    if (t == 3) slice.checksums = &checksums;  // with checksums, the same bits
    cpu::optimizer_update(update, slice);
    for (int64_t i = 0; i < n; ++i) {
      float x[3];
      for (size_t m = 0; m < 3; ++m) x[m] = to_float(scalars.moments[m][i]);
      std::visit(
          [&](const auto& u) {
            update_scalars(u, kind.moments, vectors.g[i], scalars.p[i], x[0], x[1], x[2]);
          },
          update);
      const auto element = static_cast<uint32_t>(100 + i);
      const uint32_t drawn = exec::rounding_bits(key, element),
                     more = exec::more_rounding_bits(key, element) & 0xffffu;
      const uint32_t bits[3] = {drawn & 0xffffu, drawn >> 16, more};
      for (size_t m = 0; m < 3; ++m) {
        if constexpr (std::is_same_v<Moment, float>) {
          scalars.moments[m][i] = x[m];
        } else {
          scalars.moments[m][i] = exec::round_at_random(x[m], bits[m]);
        }
      }
    }
  }
  test::expect_same_bits(vectors.p, scalars.p, what);
  for (size_t m = 0; m < 3; ++m) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Moment a = vectors.moments[m][i], b = scalars.moments[m][i];
      ASSERT_EQ(to_float(a), to_float(b)) << what << ", moment " << m << " at " << i;
      if constexpr (std::is_same_v<Moment, float>) {
        sum += std::bit_cast<uint32_t>(a);
      } else {
        sum += a.bits;
      }
    }
    if (static_cast<int>(m) >= kind.moments) sum = 0;
    EXPECT_EQ(checksums.moments[m].written, sum) << what << ", moment " << m;
  }
}

TEST(AdaptiveOptimizersTest, HaveTheBitsOfTheScalarFunctions) {
  test::for_each_target([&](const std::string& target) {
    for (const Case& kind : cases()) {
      for (const int64_t n : {1, 15, 1003}) {
        check_scalars<float>(kind, n, kind.name + ", " + target);
        check_scalars<BFloat16>(kind, n, kind.name + ", bf16, " + target);
      }
    }
  });
}

// Rounding makes the variance of equal gradients negative; PyTorch's step is NaN then.
TEST(AdaptiveOptimizersTest, CentredStaysFinite) {
  std::vector<float> p(4, 1), g(4, 0.1f), v(4), average(4);
  for (int64_t t = 1; t <= 2000; ++t) {
    cpu::optimizer_update(
        exec::RmspropUpdate::make(RmspropFields{0.9, 1e-8, 0, 0, true}, {.lr = 1e-9, .number = t}),
        {.elements = 4,
         .parameters = p.data(),
         .gradients = g.data(),
         .moments = {v.data(), average.data()}});
  }
  for (const float x : p) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace lockstep::test
