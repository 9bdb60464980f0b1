// Catches: rounding that is not to a neighbour, that is not right on average, that changes what a
// bfloat16 holds already or what is not finite; random numbers that repeat from step to step, from
// parameter to parameter or from one moment to the other; vector code with other bits than the
// scalar functions; and bits that depend on where a slice is cut.

#include <limits>

#include "runtime/base/bit_checksum.h"
#include "runtime/cpu/flat/optimizers.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

TEST(MomentRounding, GoesToEitherNeighbour) {
  for (const float x : {1.0001f, -3.14159f, 1e-30f, 7e37f, 2e-40f}) {
    const float below = to_float(exec::round_at_random(x, 0)),
                above = to_float(exec::round_at_random(x, 0xffff));
    EXPECT_LE(std::abs(below), std::abs(x));
    EXPECT_GT(std::abs(above), std::abs(x));
    EXPECT_EQ(std::bit_cast<uint32_t>(above) - std::bit_cast<uint32_t>(below), 0x10000u);
  }
}

TEST(MomentRounding, LeavesWhatNeedsNone) {
  for (const float x : {0.0f,
                        -0.0f,
                        1.5f,
                        -256.0f,
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()}) {
    for (const uint32_t random : {0u, 1u, 0xffffu})
      EXPECT_EQ(std::bit_cast<uint32_t>(to_float(exec::round_at_random(x, random))),
                std::bit_cast<uint32_t>(x));
  }
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(to_float(exec::round_at_random(std::bit_cast<float>(bits), 0xffff))));
}

// Of many elements of many steps the mean is right within five times what chance moves it by.
TEST(MomentRounding, IsRightOnAverage) {
  const float x = 1 + 0x1p-9f;  // a quarter of the way to the next bfloat16
  int64_t up = 0, count = 0;
  for (uint32_t step = 0; step < 50; ++step) {
    const exec::RoundingKey key = exec::rounding_key({3, step}, 7);
    for (uint32_t element = 0; element < 2000; ++element, ++count)
      up += to_float(exec::round_at_random(x, exec::rounding_bits(key, element) & 0xffff)) > x ? 1
                                                                                               : 0;
  }
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(static_cast<double>(up) / n, 0.25, 5 * std::sqrt(0.25 * 0.75 / n));
}

// Correlation of the 16 bits that two draws give, of 20000 elements.
double correlation(const std::function<uint32_t(uint32_t)>& a,
                   const std::function<uint32_t(uint32_t)>& b) {
  constexpr uint32_t kElements = 20000;
  constexpr double kMean = 32767.5, kVariance = 65536.0 * 65536 / 12;
  double sum = 0;
  for (uint32_t i = 0; i < kElements; ++i)
    sum += (static_cast<double>(a(i)) - kMean) * (static_cast<double>(b(i)) - kMean);
  return sum / kElements / kVariance;
}

TEST(MomentRounding, DrawsAreIndependent) {
  const auto low = [](const exec::RoundingKey& key) {
    return [key](uint32_t i) { return exec::rounding_bits(key, i) & 0xffffu; };
  };
  const exec::RoundingKey key = exec::rounding_key({1, 5}, 2);
  const double chance = 5 / std::sqrt(20000.0);
  EXPECT_NEAR(correlation(low(key), low(exec::rounding_key({1, 6}, 2))), 0, chance) << "steps";
  EXPECT_NEAR(correlation(low(key), low(exec::rounding_key({1, 5}, 3))), 0, chance) << "parameters";
  EXPECT_NEAR(correlation(low(key), low(exec::rounding_key({2, 5}, 2))), 0, chance) << "seeds";
  EXPECT_NEAR(correlation(low(key), [&](uint32_t i) { return exec::rounding_bits(key, i) >> 16; }),
              0,
              chance)
      << "moments";
  for (const uint32_t far : {1u, 2u, 16u, 64u})
    EXPECT_NEAR(
        correlation(low(key),
                    [&](uint32_t i) { return exec::rounding_bits(key, i + far) & 0xffffu; }),
        0,
        chance)
        << "elements " << far << " apart";
}

struct Arrays {
  explicit Arrays(int64_t n) : p(n, 1), g(n, 1), m(n, 3), v(n, 5) {
    test::fill_uniform(p, -1, 1, 1);
    test::fill_uniform(g, -1, 1, 2);
    for (int64_t i = 0; i < n; ++i) {
      m[i] = round_to<BFloat16>(p[i] * g[i]);
      v[i] = round_to<BFloat16>(g[i] * g[i]);
    }
  }
  exec::OptimizerSlice slice(const exec::MomentRounding& rounding, int64_t begin, int64_t end) {
    return {.elements = end - begin,
            .parameters = p.data() + begin,
            .gradients = g.data() + begin,
            .moments = {m.data() + begin, v.data() + begin},
            .moment_dtype = DType::kBF16,
            .rounding = &rounding,
            .parameter = 4,
            .first_element = static_cast<uint32_t>(100 + begin)};
  }
  Guarded<float> p, g;
  Guarded<BFloat16> m, v;
};

void expect_same(const Arrays& a, const Arrays& b, const std::string& what) {
  test::expect_same_bits(a.p, b.p, "parameters, " + what);
  for (int64_t i = 0; i < a.m.size(); ++i) {
    ASSERT_EQ(a.m[i].bits, b.m[i].bits) << what << ", first moment " << i;
    ASSERT_EQ(a.v[i].bits, b.v[i].bits) << what << ", second moment " << i;
  }
}

TEST(MomentRounding, UpdatesHaveTheBitsOfTheScalarFunctions) {
  const exec::MomentRounding rounding = {99, 12};
  const exec::AdamwUpdate adamw =
      exec::AdamwUpdate::make(AdamFields{0.9, 0.95, 1e-8, 0.1}, {.lr = 0.01, .number = 12});
  const exec::LionUpdate lion = exec::LionUpdate::make(LionFields{0.9, 0.99, 0.1}, {.lr = 0.01});
  test::for_each_target([&](const std::string& target) {
    for (const int64_t n : {1, 15, 17, 1003, 5000}) {
      for (const bool two : {true, false}) {
        Arrays vectors(n), scalars(n);
        const exec::RoundingKey key = exec::rounding_key(rounding, 4);
        for (int64_t i = 0; i < n; ++i) {
          const uint32_t drawn = exec::rounding_bits(key, static_cast<uint32_t>(100 + i));
          float m = to_float(scalars.m[i]), v = to_float(scalars.v[i]);
          if (two) {
            adamw(scalars.g[i], scalars.p[i], m, v);
            scalars.v[i] = exec::round_at_random(v, drawn >> 16);
          } else {
            lion(scalars.g[i], scalars.p[i], m);
          }
          scalars.m[i] = exec::round_at_random(m, drawn & 0xffff);
        }
        const exec::OptimizerUpdate update =
            two ? exec::OptimizerUpdate(adamw) : exec::OptimizerUpdate(lion);
        cpu::optimizer_update(update, vectors.slice(rounding, 0, n));
        expect_same(vectors, scalars, target);
      }
    }
  });
}

TEST(MomentRounding, SameBitsWhereverASliceIsCut) {
  const exec::MomentRounding rounding = {99, 12};
  const exec::OptimizerUpdate adamw =
      exec::AdamwUpdate::make(AdamFields{0.9, 0.95, 1e-8, 0.1}, {.lr = 0.01, .number = 12});
  const int64_t n = 4000;
  Arrays whole(n), cut(n);
  cpu::optimizer_update(adamw, whole.slice(rounding, 0, n));
  for (const auto& [begin, end] : {std::pair(0, 64), {64, 1000}, {1000, 4000}})
    cpu::optimizer_update(adamw, cut.slice(rounding, begin, end));
  expect_same(whole, cut, "cut");
}

// The sums of bits that a guard compares are those of what is stored.
TEST(MomentRounding, SumsAreOfTheStoredBits) {
  const exec::MomentRounding rounding = {99, 12};
  const exec::OptimizerUpdate adamw =
      exec::AdamwUpdate::make(AdamFields{0.9, 0.95, 1e-8, 0.1}, {.lr = 0.01, .number = 12});
  Arrays arrays(3000);
  const auto sum = [](const Guarded<BFloat16>& x) {
    uint32_t bits = 0;
    for (const BFloat16& value : x) bits += value.bits;
    return bits;
  };
  exec::SliceChecksums checksums;
  exec::OptimizerSlice slice = arrays.slice(rounding, 0, 3000);
  slice.checksums = &checksums;
  const uint32_t m = sum(arrays.m), v = sum(arrays.v);
  cpu::optimizer_update(adamw, slice);
  EXPECT_EQ(checksums.moments[0].read, m);
  EXPECT_EQ(checksums.moments[1].read, v);
  EXPECT_EQ(checksums.moments[0].written, sum(arrays.m));
  EXPECT_EQ(checksums.moments[1].written, sum(arrays.v));
}

}  // namespace
}  // namespace lockstep::test
