// Catches: an update that is not the CPU's, stored parameters that are not the rounded ones,
// elements lost at the end of a slice or where it is misaligned.

#include "runtime/cuda/flat/optimizers.h"

#include <cstring>

#include "runtime/cpu/flat/optimizers.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

template <typename T>
class CudaOptimizersTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaOptimizersTest, StoredTypes);

constexpr AdamFields kFields = {0.9, 0.999, 1e-8, 0.1};
constexpr RmspropFields kRmsprop = {0.9, 1e-8, 0.1, 0.8, false},
                        kCentred = {0.9, 1e-8, 0.1, 0.8, true};
constexpr AdagradFields kAdagrad = {0.1, 1e-10, 0.1};
constexpr exec::UpdateStep kStep = {.lr = 1e-3, .gradient_scale = 0.5, .number = 3};

template <typename T>
void check(exec::OptimizerUpdate constants, int moments, int64_t n, int64_t offset) {
  struct Buffers {
    Buffers(int64_t n, int64_t offset)
        : p(n, offset), g(n, offset), m(n, offset), v(n, offset), x(n, offset) {
      test::fill_uniform(p, -1, 1, 1);
      test::fill_uniform(g, -1, 1, 2);
      test::fill_uniform(m, 0, 1, 3);
      test::fill_uniform(v, 0, 1, 4);
      test::fill_uniform(x, 0, 1, 5);
    }
    Guarded<float> p, g, m, v, x;
  };
  Buffers gpu(n, offset), cpu(n, offset);
  const auto slice = [&](Buffers& buffers) {
    return exec::OptimizerSlice{.elements = n,
                                .parameters = buffers.p.data(),
                                .gradients = buffers.g.data(),
                                .moments = {moments > 0 ? buffers.m.data() : nullptr,
                                            moments > 1 ? buffers.v.data() : nullptr,
                                            moments > 2 ? buffers.x.data() : nullptr}};
  };
  Guarded<T> stored(n, offset);
  // The numbers come from the device's copy alone.
  exec::OptimizerUpdate kind = constants;
  std::visit(
      [](auto& c) {
        if constexpr (requires { c.grad_scale; }) c.grad_scale = -7;
        if constexpr (requires { c.weight; }) c.weight = -7;
      },
      kind);
  exec::OptimizerSlice on_gpu = slice(gpu);
  if (!std::is_same_v<T, float>) on_gpu.stored = stored.data();
  cuda::PlacedSlice table[1];
  const uint32_t blocks = cuda::place_slices({&on_gpu, 1}, {&kind, 1}, &constants, table);
  cuda::optimizer_update<T>(table, 1, blocks, nullptr, nullptr);
  cpu::optimizer_update(constants, slice(cpu));
  test::expect_same_bits(cpu.p, gpu.p, "parameters");
  test::expect_same_bits(cpu.g, gpu.g, "gradients");
  test::expect_same_bits(cpu.m, gpu.m, "first moments");
  test::expect_same_bits(cpu.v, gpu.v, "second moments");
  test::expect_same_bits(cpu.x, gpu.x, "third moments");
  if constexpr (!std::is_same_v<T, float>) {
    // The first halves of Adafactor, LAMB and Muon leave the parameters as they are.
    const bool writes = !std::holds_alternative<exec::AdafactorDirection>(constants) &&
                        !std::holds_alternative<exec::LambDirection>(constants) &&
                        !std::holds_alternative<exec::MuonMomentum>(constants);
    for (int64_t i = 0; i < n && writes; ++i)
      ASSERT_EQ(to_float(stored[i]), to_float(round_to<T>(cpu.p[i]))) << i;
  }
}

TYPED_TEST(CudaOptimizersTest, HasTheBitsOfTheCpu) {
  for (int64_t n : {1, 1027, 4096}) {
    for (int64_t offset : {0, 1}) {
      check<TypeParam>(exec::SgdUpdate{0.1f, 0, 0.01f, 0.5f, false}, 0, n, offset);
      check<TypeParam>(exec::SgdUpdate{0.1f, 0.9f, 0.01f, 0.5f, true}, 1, n, offset);
      check<TypeParam>(exec::MovingAverage{0.9f, 0.025f}, 0, n, offset);
      check<TypeParam>(exec::Exchange(), 0, n, offset);
      check<TypeParam>(exec::LambDirection::make(kFields, kStep), 2, n, offset);
      check<TypeParam>(exec::AdafactorDirection{0.3f, 0.7f, 0.01f, 0.5f}, 1, n, offset);
      check<TypeParam>(exec::MuonMomentum{0.9f, 0.1f, 0.5f, true}, 1, n, offset);
      check<TypeParam>(exec::MuonStep{0.1f, 0.99f}, 0, n, offset);
      check<TypeParam>(exec::AdamwUpdate::make(kFields, kStep), 2, n, offset);
      check<TypeParam>(exec::AdamUpdate::make(kFields, kStep), 2, n, offset);
      check<TypeParam>(exec::AdamwUpdate::make(kFields, kStep), 3, n, offset);
      check<TypeParam>(exec::RmspropUpdate::make(kRmsprop, kStep), 1, n, offset);
      check<TypeParam>(exec::RmspropUpdate::make(kRmsprop, kStep), 2, n, offset);
      check<TypeParam>(exec::RmspropUpdate::make(kCentred, kStep), 2, n, offset);
      check<TypeParam>(exec::RmspropUpdate::make(kCentred, kStep), 3, n, offset);
      check<TypeParam>(exec::AdagradUpdate::make(kAdagrad, kStep), 1, n, offset);
      check<TypeParam>(exec::LionUpdate::make(LionFields{0.9, 0.99, 0.1}, kStep), 1, n, offset);
    }
  }
}

// Moments of two bytes, whose slices begin within their parameters.
TYPED_TEST(CudaOptimizersTest, RoundsMomentsAsTheCpuDoes) {
  const exec::MomentRounding rounding = {7, 12};
  const auto check = [&](const exec::OptimizerUpdate& constants,
                         int moments,
                         int64_t n,
                         int64_t offset) {
    struct Buffers {
      Buffers(int64_t n, int64_t offset)
          : p(n, offset), g(n, offset), m(n, offset), v(n, offset), x(n, offset) {
        test::fill_uniform(p, -1, 1, 1);
        test::fill_uniform(g, -1, 1, 2);
        test::fill_stored(m, 0, 1, 3);
        test::fill_stored(v, 0, 1, 4);
        test::fill_stored(x, 0, 1, 5);
      }
      Guarded<float> p, g;
      Guarded<BFloat16> m, v, x;
    };
    Buffers gpu(n, offset), cpu(n, offset);
    Guarded<TypeParam> stored(n, offset);
    const auto slice = [&](Buffers& buffers) {
      return exec::OptimizerSlice{.elements = n,
                                  .parameters = buffers.p.data(),
                                  .gradients = buffers.g.data(),
                                  .moments = {buffers.m.data(),
                                              moments > 1 ? buffers.v.data() : nullptr,
                                              moments > 2 ? buffers.x.data() : nullptr},
                                  .moment_dtype = DType::kBF16,
                                  .rounding = &rounding,
                                  .parameter = 5,
                                  .first_element = 1234};
    };
    exec::OptimizerSlice on_gpu = slice(gpu);
    if (!std::is_same_v<TypeParam, float>) on_gpu.stored = stored.data();
    cuda::PlacedSlice table[1];
    const uint32_t blocks = cuda::place_slices({&on_gpu, 1}, {&constants, 1}, &constants, table);
    cuda::optimizer_update<TypeParam, BFloat16>(table, 1, blocks, nullptr, nullptr, &rounding);
    cpu::optimizer_update(constants, slice(cpu));
    test::expect_same_bits(cpu.p, gpu.p, "parameters");
    test::expect_same_bits(cpu.g, gpu.g, "gradients");
    test::expect_same_bits(test::as_doubles(cpu.m), test::as_doubles(gpu.m), "first moments");
    test::expect_same_bits(test::as_doubles(cpu.v), test::as_doubles(gpu.v), "second moments");
    test::expect_same_bits(test::as_doubles(cpu.x), test::as_doubles(gpu.x), "third moments");
  };
  for (int64_t n : {1, 1027, 4096}) {
    for (int64_t offset : {0, 1}) {
      check(exec::AdamwUpdate::make(kFields, kStep), 2, n, offset);
      check(exec::AdamwUpdate::make(kFields, kStep), 3, n, offset);
      check(exec::RmspropUpdate::make(kCentred, kStep), 3, n, offset);
      check(exec::LambDirection::make(kFields, kStep), 2, n, offset);
      check(exec::SgdUpdate{0.1f, 0.9f, 0.01f, 0.5f, true}, 1, n, offset);
      check(exec::MuonMomentum{0.9f, 0.1f, 0.5f, true}, 1, n, offset);
    }
  }
}

// Moments in blocks, with as many blocks as a warp has, and more than a thread block has warps.
TYPED_TEST(CudaOptimizersTest, EncodesBlocksAsTheCpuDoes) {
  const auto check = [&](const exec::OptimizerUpdate& constants,
                         int moments,
                         uint8_t squares,
                         int64_t offset) {
    constexpr int64_t kBlocks = 11, n = kBlocks * kMomentBlock;
    struct Buffers {
      explicit Buffers(int64_t offset) : p(n, offset), g(n, offset) {
        test::fill_uniform(p, -1, 1, 1);
        test::fill_uniform(g, -1, 1, 2);
        std::vector<float> values(kMomentBlock);
        for (size_t m = 0; m < 3; ++m) {
          for (size_t b = 0; b < kBlocks; ++b) {
            test::fill_uniform(values, 0, 1, 3 + m + 3 * b);
            encode_moments(kUnsignedMoments, values.data(), moments[m].emplace_back());
          }
        }
        moments[0][3].scale = 0;
      }
      Guarded<float> p, g;
      std::vector<MomentBlock> moments[3];
    };
    Buffers gpu(offset), cpu(offset);
    Guarded<TypeParam> stored(n, offset);
    const auto slice = [&](Buffers& buffers) {
      exec::OptimizerSlice slice = {.elements = n,
                                    .parameters = buffers.p.data(),
                                    .gradients = buffers.g.data(),
                                    .moment_dtype = DType::kU8,
                                    .square_moments = squares};
      for (size_t m = 0; m < static_cast<size_t>(moments); ++m)
        slice.moments[m] = buffers.moments[m].data();
      return slice;
    };
    exec::OptimizerSlice on_gpu = slice(gpu);
    if (!std::is_same_v<TypeParam, float>) on_gpu.stored = stored.data();
    cuda::PlacedSlice table[1];
    const uint32_t blocks = cuda::place_slices({&on_gpu, 1}, {&constants, 1}, &constants, table);
    cuda::optimizer_update<TypeParam, MomentBlock>(table, 1, blocks, nullptr, nullptr);
    cpu::optimizer_update(constants, slice(cpu));
    test::expect_same_bits(cpu.p, gpu.p, "parameters");
    test::expect_same_bits(cpu.g, gpu.g, "gradients");
    for (size_t m = 0; m < 3; ++m)
      EXPECT_EQ(std::memcmp(cpu.moments[m].data(), gpu.moments[m].data(), kBlocks * 260), 0) << m;
  };
  for (const int64_t offset : {0, 1}) {
    check(exec::AdamwUpdate::make(kFields, kStep), 2, 0b10, offset);
    check(exec::AdamwUpdate::make(kFields, kStep), 3, 0b110, offset);
    check(exec::RmspropUpdate::make(kCentred, kStep), 3, 0b001, offset);
    check(exec::LambDirection::make(kFields, kStep), 2, 0b10, offset);
    check(exec::MuonStep{0.1f, 0.99f}, 0, 0, offset);
  }
}

// Slices of one launch, of all lengths around those of a block, two groups of constants in turn.
TYPED_TEST(CudaOptimizersTest, FindsTheSliceOfEveryBlock) {
  exec::UpdateStep without_decay = kStep;
  without_decay.decays = false;
  const exec::OptimizerUpdate groups[2] = {exec::AdamwUpdate::make(kFields, kStep),
                                           exec::AdamwUpdate::make(kFields, without_decay)};
  const std::vector<int64_t> lengths = {64, 2048, 1, 4096, 2047, 2049, 10000, 4, 6145};
  int64_t n = 0;
  for (int64_t length : lengths) n += length;
  Guarded<float> p(n), g(n), m(n), v(n), p_cpu(n), m_cpu(n), v_cpu(n);
  Guarded<TypeParam> stored(n);
  for (auto* buffer : {&p, &p_cpu}) test::fill_uniform(*buffer, -1, 1, 1);
  for (auto* buffer : {&m, &m_cpu}) test::fill_uniform(*buffer, -1, 1, 3);
  for (auto* buffer : {&v, &v_cpu}) test::fill_uniform(*buffer, 0, 1, 4);
  test::fill_uniform(g, -1, 1, 2);
  constexpr bool kWide = std::is_same_v<TypeParam, float>;
  std::vector<exec::OptimizerSlice> slices;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    exec::OptimizerSlice slice{.group = i % 2,
                               .elements = lengths[i],
                               .parameters = p_cpu.data() + at,
                               .gradients = g.data() + at,
                               .moments = {m_cpu.data() + at, v_cpu.data() + at}};
    cpu::optimizer_update(groups[i % 2], slice);
    slice.parameters = p.data() + at;
    slice.moments = {m.data() + at, v.data() + at};
    if (!kWide) slice.stored = stored.data() + at;
    slices.push_back(slice);
    at += lengths[i];
  }
  std::vector<cuda::PlacedSlice> table(slices.size());
  const uint32_t blocks = cuda::place_slices(slices, groups, groups, table.data());
  cuda::optimizer_update<TypeParam>(
      table.data(), static_cast<int>(table.size()), blocks, nullptr, nullptr);
  test::expect_same_bits(p_cpu, p, "parameters");
  test::expect_same_bits(m_cpu, m, "first moments");
  test::expect_same_bits(v_cpu, v, "second moments");
  for (int64_t i = 0; !kWide && i < n; ++i)
    ASSERT_EQ(to_float(stored[i]), to_float(round_to<TypeParam>(p[i]))) << i;
}

}  // namespace
}  // namespace lockstep::test
