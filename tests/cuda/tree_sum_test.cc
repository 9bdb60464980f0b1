// Catches: a tree that differs from the CPU's in one bit, whatever its terms are rounded to and
// whether they have travelled; an array whose address no vector may be read from.

#include "runtime/cuda/flat/tree_sum.h"

#include <fmt/core.h>

#include <deque>

#include "runtime/base/half.h"
#include "runtime/cpu/flat/tree_sum.h"
#include "tests/fibers/kernel_test.h"

namespace lockstep::test {
namespace {

TEST(CudaTreeSumTest, AnyTreeHasTheBitsOfTheCpu) {
  const std::vector<std::vector<uint8_t>> trees = {
      {0, 1, 1},
      {0, 0, 2},
      {0, 1, 0, 1, 2},
      {0, 0, 1, 1, 1, 0, 3},
      {0, 1, 0, 2, 1, 0, 0, 3},
      // Terms that wait for the sum of four or eight others, or of a tree that is not balanced.
      {0, 0, 0, 0, 1, 0, 5},
      {0, 0, 1, 0, 2, 0, 1, 0, 4},
      {0, 0, 0, 1, 3}};
  for (const std::vector<uint8_t>& joins : trees) {
    const auto count = static_cast<int>(joins.size());
    for (const DType wire : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t offset : {0, 1}) {
        const int64_t n = 1031;
        const std::string what = fmt::format("{} tree of {}", lockstep::name_of(wire), count);
        std::deque<Guarded<float>> arrays;
        std::deque<Guarded<uint16_t>> packed;
        std::vector<const void*> floats, halves;
        for (int s = 0; s < count; ++s) {
          arrays.emplace_back(n, offset);
          packed.emplace_back(n, offset);
          std::vector<float> values(n);
          test::fill_uniform(values, -1, 1, static_cast<size_t>(s));
          std::copy(values.begin(), values.end(), arrays.back().data());
          floats.push_back(arrays.back().data());
          halves.push_back(packed.back().data());
        }
        collectives::TreeSumTerms terms = {floats.data(), count, wire, false, true, joins.data()};
        Guarded<float> expected(n), sum(n, offset);
        cpu::tree_sum(terms, expected.data(), n);
        cuda::tree_sum(terms, sum.data(), n, nullptr);
        test::expect_same_bits(expected, sum, what);
        if (wire == DType::kF32) continue;
        for (int s = 0; s < count; ++s)
          cpu::pack(arrays[static_cast<size_t>(s)].data(),
                    wire,
                    reinterpret_cast<std::byte*>(packed[static_cast<size_t>(s)].data()),
                    n);
        terms.arrays = halves.data();
        terms.travelled = true;
        cuda::tree_sum(terms, sum.data(), n, nullptr);
        test::expect_same_bits(expected, sum, what + ", travelled");
        if (wire == DType::kF16) continue;
        std::vector<uint16_t> kept[2];
        for (auto& of_device : kept) of_device.assign(static_cast<size_t>(count - 1) * n, 0x3b80);
        terms.round_sum = false;
        terms.residuals = {kept[0].data(), n};
        cpu::tree_sum(terms, expected.data(), n);
        terms.residuals = {kept[1].data(), n};
        cuda::tree_sum(terms, sum.data(), n, nullptr);
        test::expect_same_bits(expected, sum, what + ", residuals");
        EXPECT_EQ(kept[0], kept[1]) << what;
      }
    }
  }
}

TEST(CudaTreeSumTest, HasTheBitsOfTheCpu) {
  for (const DType wire : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int count : {1, 2, 4, 8, 16, 32, 64}) {
      const bool rounds = wire != DType::kF32;
      for (const int64_t offset : {0, 1}) {
        const int64_t n = 1031;
        const std::string what =
            fmt::format("{} tree of {}, offset {}", lockstep::name_of(wire), count, offset);
        std::vector<std::vector<float>> arrays(static_cast<size_t>(count), std::vector<float>(n));
        std::deque<Guarded<uint16_t>> packed;
        std::vector<const void*> floats, halves;
        for (int s = 0; s < count; ++s) packed.emplace_back(n, offset);
        for (size_t s = 0; s < arrays.size(); ++s) {
          test::fill_uniform(arrays[s], -1, 1, s);
          for (size_t i = 0; i < arrays[s].size(); i += 3) arrays[s][i] *= 0x1p-18f;
          floats.push_back(arrays[s].data());
          halves.push_back(packed[s].data());
        }
        Guarded<float> expected(n), sum(n, offset);
        cpu::tree_sum({floats.data(), count, wire, false}, expected.data(), n);
        cuda::tree_sum({floats.data(), count, wire, false}, sum.data(), n, nullptr);
        test::expect_same_bits(expected, sum, what);
        cpu::tree_sum({floats.data(), count, wire, false, true}, expected.data(), n);
        cuda::tree_sum({floats.data(), count, wire, false, true}, sum.data(), n, nullptr);
        test::expect_same_bits(expected, sum, what + ", rounded");
        if (!rounds) continue;

        for (size_t s = 0; s < arrays.size(); ++s) {
          Guarded<uint16_t> wanted(n);
          cpu::pack(arrays[s].data(), wire, reinterpret_cast<std::byte*>(wanted.data()), n);
          cuda::pack(
              arrays[s].data(), wire, reinterpret_cast<std::byte*>(packed[s].data()), n, nullptr);
          for (int64_t i = 0; i < n; ++i) ASSERT_EQ(packed[s][i], wanted[i]) << what;
        }
        Guarded<float> travelled(n, offset);
        cuda::tree_sum({halves.data(), count, wire, true, true}, travelled.data(), n, nullptr);
        test::expect_same_bits(expected, travelled, what + ", travelled");
      }
    }
  }
}

TEST(CudaTreeSumTest, KeepsTheResidualsOfTheCpu) {
  for (const int count : {1, 2, 4, 8, 16, 32, 64}) {
    const int64_t n = 1031, joins = std::max(count - 1, 1);
    std::vector<std::vector<float>> arrays(static_cast<size_t>(count), std::vector<float>(n));
    std::deque<Guarded<uint16_t>> packed;
    Guarded<uint16_t> wanted_kept(n * joins), kept(n * joins), travelled_kept(n * joins);
    for (int64_t i = 0; i < n * joins; ++i) wanted_kept[i] = kept[i] = travelled_kept[i] = 0;
    for (int s = 0; s < count; ++s) packed.emplace_back(n);
    for (int step = 0; step < 3; ++step) {
      const std::string what = fmt::format("tree of {}, step {}", count, step);
      std::vector<const void*> floats, halves;
      for (size_t s = 0; s < arrays.size(); ++s) {
        test::fill_uniform(arrays[s], -1, 1, 100 * static_cast<uint32_t>(step) + s);
        cpu::pack(
            arrays[s].data(), DType::kBF16, reinterpret_cast<std::byte*>(packed[s].data()), n);
        for (size_t i = 0; i < arrays[s].size(); ++i)
          arrays[s][i] = to_float(BFloat16{packed[s][static_cast<int64_t>(i)]});
        floats.push_back(arrays[s].data());
        halves.push_back(packed[s].data());
      }
      collectives::TreeSumTerms terms = {
          .arrays = floats.data(), .count = count, .wire = DType::kBF16};
      Guarded<float> expected(n), sum(n), travelled(n, 1);
      terms.residuals = {wanted_kept.data(), n};
      cpu::tree_sum(terms, expected.data(), n);
      terms.residuals = {kept.data(), n};
      cuda::tree_sum(terms, sum.data(), n, nullptr);
      terms.residuals = {travelled_kept.data(), n};
      terms.arrays = halves.data();
      terms.travelled = true;
      cuda::tree_sum(terms, travelled.data(), n, nullptr);
      test::expect_same_bits(expected, sum, what);
      test::expect_same_bits(expected, travelled, what + ", travelled");
      for (int64_t i = 0; i < n * joins; ++i) {
        ASSERT_EQ(kept[i], wanted_kept[i]) << what << ", " << i;
        ASSERT_EQ(travelled_kept[i], wanted_kept[i]) << what << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
