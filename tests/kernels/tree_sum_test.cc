// Catches: a tree that adds in another order than the one promised (the same bits on any number of
// ranks depend on it), a rounding that differs from runtime/base/half.h or is forgotten on one
// level, writes outside an array, sums that depend on threads or vector width.

#include "runtime/cpu/flat/tree_sum.h"

#include <fmt/core.h>

#include <deque>

#include "runtime/base/half.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

constexpr int64_t kSizes[] = {1, 15, 17, 1003};
constexpr DType kWires[] = {DType::kF32, DType::kBF16, DType::kF16};

float rounded(float x, DType wire) {
  switch (wire) {
    case DType::kBF16: return to_float(round_to<BFloat16>(x));
    case DType::kF16: return to_float(round_to<Float16>(x));
    default: return x;
  }
}

float tree(const std::vector<std::vector<float>>& arrays,
           size_t first,
           size_t count,
           int64_t i,
           DType wire) {
  if (count == 1) return arrays[first][i];
  return rounded(tree(arrays, first, count / 2, i, wire), wire) +
         rounded(tree(arrays, first + count / 2, count / 2, i, wire), wire);
}

// Numbers of all sizes that the 16-bit types treat differently: ties, subnormals, overflow.
void fill_hard(std::vector<float>& x, uint32_t seed) {
  test::fill_uniform(x, -1, 1, seed);
  for (size_t i = 0; i < x.size(); ++i) {
    switch (i % 8) {
      case 0: x[i] = std::ldexp(x[i], static_cast<int>(i * 7 % 60) - 40); break;
      case 1: x[i] = 1 + static_cast<float>(i % 64 + seed) / 512; break;
      case 2: x[i] *= 0x1p-20f; break;
      case 3: x[i] *= 80000; break;
      default: break;
    }
  }
}

struct Arrays {
  Arrays(int count, int64_t n) : values(static_cast<size_t>(count)) {
    for (size_t k = 0; k < values.size(); ++k) {
      values[k].resize(static_cast<size_t>(n));
      fill_hard(values[k], static_cast<uint32_t>(100 + k));
      pointers.push_back(values[k].data());
    }
  }
  collectives::TreeSumTerms terms(DType wire) const {
    return {pointers.data(), static_cast<int>(pointers.size()), wire, false};
  }
  std::vector<float> expected(DType wire) const {
    std::vector<float> sums(values[0].size());
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = tree(values, 0, values.size(), static_cast<int64_t>(i), wire);
    return sums;
  }
  std::vector<std::vector<float>> values;
  std::vector<const void*> pointers;
};

TEST(TreeSumTest, AddsInTheOrderOfTheTreeWhatIsRounded) {
  test::for_each_target([&](const std::string& target) {
    for (const DType wire : kWires) {
      for (int count : {1, 2, 4, 8, 16, 32}) {
        for (int64_t n : kSizes) {
          Arrays arrays(count, n);
          const std::vector<float> expected = arrays.expected(wire);
          const std::string what =
              fmt::format("{} sum of {}, {}", lockstep::name_of(wire), count, target);
          Guarded<float> out(n, 1);
          collectives::TreeSumTerms whole = arrays.terms(wire);
          whole.round_sum = true;
          cpu::tree_sum(whole, out.data(), n);
          std::vector<float> rounded_sums = expected;
          for (float& sum : rounded_sums) sum = rounded(sum, wire);
          test::expect_same_bits(rounded_sums, out, what + ", rounded");
          cpu::tree_sum(arrays.terms(wire), out.data(), n);
          test::expect_same_bits(expected, out, what);
          // Into one of the terms, and copies over the others and elsewhere.
          std::vector<float>& term = arrays.values[static_cast<size_t>(count / 2)];
          cpu::tree_sum(arrays.terms(wire), term.data(), n);
          test::expect_same_bits(expected, term, what + ", in place");
          Arrays terms(count, n);
          Guarded<float> copy(n, 1);
          std::vector<float*> copies = {copy.data()};
          for (size_t k = 1; k < terms.values.size(); ++k) copies.push_back(terms.values[k].data());
          collectives::TreeSumTerms copied = terms.terms(wire);
          copied.copies = copies.data();
          copied.copy_count = static_cast<int>(copies.size());
          cpu::tree_sum(copied, terms.values[0].data(), n);
          test::expect_same_bits(expected, copy, what + ", copied");
          for (const std::vector<float>& sums : terms.values)
            test::expect_same_bits(expected, sums, what + ", over all terms");
        }
      }
    }
  });
}

// Trees of terms of different sizes, as {joins after each term}.
const std::vector<std::vector<uint8_t>> kJoins = {
    {0, 1, 1}, {0, 0, 2}, {0, 1, 0, 1, 2}, {0, 0, 1, 1, 1, 0, 3}, {0, 1, 0, 2, 1, 0, 0, 3}};

// The term with which the right half of terms [first, end) begins.
size_t middle_of(const std::vector<uint8_t>& joins, size_t first, size_t end) {
  std::vector<size_t> open;
  for (size_t k = first; k < end; ++k) {
    open.push_back(k);
    for (int j = joins[k]; j > 0 && open.size() > (k + 1 == end ? 2 : 1); --j) open.pop_back();
  }
  return open[1];
}

float joined(const Arrays& arrays,
             const std::vector<uint8_t>& joins,
             size_t first,
             size_t end,
             size_t i,
             DType wire) {
  if (end == first + 1) return arrays.values[first][i];
  const size_t middle = middle_of(joins, first, end);
  return rounded(joined(arrays, joins, first, middle, i, wire), wire) +
         rounded(joined(arrays, joins, middle, end, i, wire), wire);
}

TEST(TreeSumTest, AnyTreeAddsInItsOrder) {
  test::for_each_target([&](const std::string& target) {
    for (const std::vector<uint8_t>& joins : kJoins) {
      for (const DType wire : kWires) {
        for (const int64_t n : kSizes) {
          Arrays arrays(static_cast<int>(joins.size()), n);
          std::vector<float> expected(static_cast<size_t>(n));
          for (size_t i = 0; i < expected.size(); ++i)
            expected[i] = joined(arrays, joins, 0, joins.size(), i, wire);
          const std::string what =
              fmt::format("{} sum of {}, {}", lockstep::name_of(wire), joins.size(), target);
          collectives::TreeSumTerms terms = arrays.terms(wire);
          terms.joins = joins.data();
          Guarded<float> out(n, 1);
          cpu::tree_sum(terms, out.data(), n);
          test::expect_same_bits(expected, out, what);
          if (wire == DType::kF32) continue;
          std::deque<Guarded<uint16_t>> packed;
          std::vector<const void*> halves;
          for (const std::vector<float>& values : arrays.values) {
            packed.emplace_back(n, 1);
            halves.push_back(packed.back().data());
            cpu::pack(values.data(), wire, reinterpret_cast<std::byte*>(packed.back().data()), n);
          }
          terms.arrays = halves.data();
          terms.travelled = true;
          cpu::tree_sum(terms, out.data(), n);
          test::expect_same_bits(expected, out, what + ", travelled");
        }
      }
    }
  });
}

// A tree that is balanced gives the same bits and residuals whichever way it is described.
TEST(TreeSumTest, BothDescriptionsOfABalancedTreeGiveTheSameBits) {
  const std::vector<uint8_t> joins = {0, 1, 0, 2, 0, 1, 0, 3};
  test::for_each_target([&](const std::string& target) {
    for (const int64_t n : kSizes) {
      Arrays arrays(8, n);
      std::vector<uint16_t> kept[2];
      std::vector<float> sums[2];
      for (const int way : {0, 1}) {
        kept[way].assign(static_cast<size_t>(7 * n), 0x3c00);
        sums[way].resize(static_cast<size_t>(n));
        collectives::TreeSumTerms terms = arrays.terms(DType::kBF16);
        terms.residuals = {kept[way].data(), n};
        if (way == 1) terms.joins = joins.data();
        cpu::tree_sum(terms, sums[way].data(), n);
      }
      test::expect_same_bits(sums[0], sums[1], target);
      EXPECT_EQ(kept[0], kept[1]) << target;
    }
  });
}

// What has travelled in 16 bits gives the bits of what lies there in float; and in two levels, the
// bits of one.
TEST(TreeSumTest, TravelledTermsAndLevelsGiveTheSameBits) {
  test::for_each_target([&](const std::string& target) {
    for (const DType wire : {DType::kBF16, DType::kF16}) {
      for (int count : {2, 4, 8, 16}) {
        for (int64_t n : kSizes) {
          Arrays arrays(count, n);
          const std::vector<float> expected = arrays.expected(wire);
          const std::string what =
              fmt::format("{} sum of {}, {}", lockstep::name_of(wire), count, target);
          std::deque<Guarded<uint16_t>> packed;
          std::vector<const void*> pointers;
          for (int k = 0; k < count; ++k) packed.emplace_back(n, k % 2);
          for (size_t k = 0; k < packed.size(); ++k) {
            cpu::pack(
                arrays.values[k].data(), wire, reinterpret_cast<std::byte*>(packed[k].data()), n);
            for (int64_t i = 0; i < n; ++i) {
              const float x = arrays.values[k][static_cast<size_t>(i)];
              const uint16_t wanted =
                  wire == DType::kBF16 ? round_to<BFloat16>(x).bits : round_to<Float16>(x).bits;
              ASSERT_EQ(packed[k][i], wanted) << what << " " << x;
            }
            pointers.push_back(packed[k].data());
          }
          Guarded<float> out(n, 1);
          cpu::tree_sum({pointers.data(), count, wire, true}, out.data(), n);
          test::expect_same_bits(expected, out, what);

          for (size_t k = 0; k < arrays.values.size(); k += 2)
            cpu::tree_sum({&arrays.pointers[k], 2, wire, false}, arrays.values[k].data(), n);
          if (count == 2) continue;
          std::vector<const void*> pairs;
          for (size_t k = 0; k < arrays.values.size(); k += 2) pairs.push_back(arrays.pointers[k]);
          cpu::tree_sum({pairs.data(), count / 2, wire, false}, out.data(), n);
          test::expect_same_bits(expected, out, what + ", in two levels");
        }
      }
    }
  });
}

TEST(TreeSumTest, WhatIsNotFiniteStaysSo) {
  test::for_each_target([&](const std::string& target) {
    for (const DType wire : kWires) {
      const float values[] = {NAN, INFINITY, -INFINITY, std::bit_cast<float>(0x7f800001u)};
      for (const float value : values) {
        std::vector<float> x(33, 1), y(33, 2);
        x[0] = x[32] = value;
        const void* both[] = {x.data(), y.data()};
        std::vector<float> out(33);
        cpu::tree_sum({both, 2, wire, false}, out.data(), 33);
        for (const size_t i : {size_t{0}, size_t{32}}) {
          EXPECT_EQ(std::isnan(out[i]), std::isnan(value)) << target << lockstep::name_of(wire);
          if (std::isinf(value)) {
            EXPECT_EQ(out[i], value) << target << lockstep::name_of(wire);
          }
        }
        EXPECT_EQ(out[1], 3);
      }
    }
  });
}

// The sum of terms [first, first + count) of element i; every one made takes up its residual.
float keeping_tree(const std::vector<std::vector<float>>& arrays,
                   std::vector<std::vector<uint16_t>>& kept,
                   size_t first,
                   size_t count,
                   size_t i) {
  const size_t half = count / 2;
  float wanted = 0;
  if (count == 1) {
    wanted = rounded(arrays[first][i], DType::kBF16);
    if (arrays.size() > 1) return wanted;
  } else {
    wanted = keeping_tree(arrays, kept, first, half, i) +
             keeping_tree(arrays, kept, first + half, half, i);
  }
  uint16_t& residual = kept[count == 1 ? 0 : first + half - 1][i];
  wanted += to_float(BFloat16{residual});
  const float sum = rounded(wanted, DType::kBF16);
  const float rest = rounded(wanted - sum, DType::kBF16);
  residual = std::isfinite(rest) ? round_to<BFloat16>(rest).bits : 0;
  return sum;
}

// Step after step, of terms in float and of what has travelled.
TEST(TreeSumTest, ResidualsReturnInTheNextSum) {
  test::for_each_target([&](const std::string& target) {
    for (const int count : {1, 2, 4, 8, 16, 32}) {
      for (const int64_t n : kSizes) {
        const std::string what = fmt::format("sum of {}, {}", count, target);
        Arrays arrays(count, n);
        const size_t joins = static_cast<size_t>(std::max(count - 1, 1)),
                     size = static_cast<size_t>(n);
        std::vector<std::vector<uint16_t>> expected(joins, std::vector<uint16_t>(size));
        Guarded<uint16_t> kept(n * static_cast<int64_t>(joins)), other(kept.size());
        for (int64_t i = 0; i < kept.size(); ++i) kept[i] = other[i] = 0;
        for (int step = 0; step < 3; ++step) {
          std::deque<Guarded<uint16_t>> packed;
          std::vector<const void*> halves;
          for (size_t k = 0; k < arrays.values.size(); ++k) {
            std::vector<float>& values = arrays.values[k];
            fill_hard(values, static_cast<uint32_t>(1000 * step) + static_cast<uint32_t>(k));
            for (float& x : values) x = rounded(x, DType::kBF16);
            if (step == 1) values[0] = k == 0 ? INFINITY : 1;
            halves.push_back(packed.emplace_back(n, 1).data());
            cpu::pack(
                values.data(), DType::kBF16, reinterpret_cast<std::byte*>(packed.back().data()), n);
          }
          collectives::TreeSumTerms terms = arrays.terms(DType::kBF16);
          terms.residuals = {kept.data(), n};
          Guarded<float> out(n, 1), travelled(n);
          cpu::tree_sum(terms, out.data(), n);
          cpu::tree_sum({.arrays = halves.data(),
                         .count = count,
                         .wire = DType::kBF16,
                         .travelled = true,
                         .residuals = {other.data(), n}},
                        travelled.data(),
                        n);
          std::vector<float> wanted(size);
          for (size_t i = 0; i < size; ++i)
            wanted[i] = keeping_tree(arrays.values, expected, 0, arrays.values.size(), i);
          test::expect_same_bits(wanted, out, what);
          test::expect_same_bits(wanted, travelled, what + ", travelled");
          for (size_t join = 0; join < joins; ++join) {
            for (size_t i = 0; i < size; ++i) {
              const auto at = static_cast<int64_t>(join * size + i);
              ASSERT_EQ(kept[at], expected[join][i]) << what << ", join " << join << ", " << i;
              ASSERT_EQ(other[at], expected[join][i]) << what << ", join " << join << ", " << i;
            }
          }
        }
      }
    }
  });
}

// Large sums go past the caches where their memory is aligned, and end off a vector.
TEST(TreeSumTest, LargeSums) {
  constexpr int64_t kMax = (int64_t{1} << 20) + 77;
  for (const int count : {2, 4, 8}) {
    const Arrays arrays(count, kMax);
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      const std::vector<float> expected = arrays.expected(wire);
      test::for_each_target([&](const std::string& target) {
        for (const int64_t offset : {0, 3}) {
          const int64_t n = kMax - offset;
          std::vector<float> memory(kMax + 32, -1);
          float* const out = reinterpret_cast<float*>(
                                 (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64) +
                             offset;
          cpu::tree_sum(arrays.terms(wire), out, n);
          for (int64_t i = 0; i < n; ++i)
            ASSERT_EQ(out[i], expected[static_cast<size_t>(i)])
                << target << " " << lockstep::name_of(wire) << " " << count << " " << i;
          EXPECT_EQ(out[n], -1) << target;
        }
      });
    }
  }
}

TEST(TreeSumTest, Reproducible) {
  const int64_t n = 100003;
  const Arrays arrays(4, n);
  for (const DType wire : kWires) {
    test::expect_reproducible<float>(
        [&] {
          std::vector<float> sums(n);
          cpu::tree_sum(arrays.terms(wire), sums.data(), n);
          return sums;
        },
        "tree_sum");
  }
}

}  // namespace
}  // namespace lockstep::test
