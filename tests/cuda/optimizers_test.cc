// Catches: an update that is not the CPU's, stored parameters that are not the rounded ones,
// elements lost at the end of a slice or where it is misaligned.

#include "runtime/cuda/flat/optimizers.h"

#include "runtime/cpu/flat/optimizers.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

template <typename T>
class CudaOptimizersTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaOptimizersTest, StoredTypes);

constexpr AdamFields kFields = {0.9, 0.999, 1e-8, 0.1};
constexpr exec::UpdateStep kStep = {.lr = 1e-3, .gradient_scale = 0.5, .number = 3};

template <typename T>
void check(exec::OptimizerUpdate constants, bool moment, int64_t n, int64_t offset) {
  struct Buffers {
    Buffers(int64_t n, int64_t offset) : p(n, offset), g(n, offset), m(n, offset), v(n, offset) {
      test::fill_uniform(p, -1, 1, 1);
      test::fill_uniform(g, -1, 1, 2);
      test::fill_uniform(m, -1, 1, 3);
      test::fill_uniform(v, 0, 1, 4);
    }
    Guarded<float> p, g, m, v;
  };
  Buffers gpu(n, offset), cpu(n, offset);
  const auto slice = [&](Buffers& buffers) {
    return exec::OptimizerSlice{.elements = n,
                                .parameters = buffers.p.data(),
                                .gradients = buffers.g.data(),
                                .first_moment = moment ? buffers.m.data() : nullptr,
                                .second_moment = buffers.v.data()};
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
  if constexpr (!std::is_same_v<T, float>) {
    // The first halves of LAMB and Muon leave the parameters as they are.
    const bool writes = !std::holds_alternative<exec::LambDirection>(constants) &&
                        !std::holds_alternative<exec::MuonMomentum>(constants);
    for (int64_t i = 0; i < n && writes; ++i)
      ASSERT_EQ(to_float(stored[i]), to_float(round_to<T>(cpu.p[i]))) << i;
  }
}

TYPED_TEST(CudaOptimizersTest, HasTheBitsOfTheCpu) {
  for (int64_t n : {1, 1027, 4096}) {
    for (int64_t offset : {0, 1}) {
      check<TypeParam>(exec::SgdUpdate{0.1f, 0, 0.01f, 0.5f, false}, false, n, offset);
      check<TypeParam>(exec::SgdUpdate{0.1f, 0.9f, 0.01f, 0.5f, true}, true, n, offset);
      check<TypeParam>(exec::MovingAverage{0.9f, 0.025f}, false, n, offset);
      check<TypeParam>(exec::Exchange(), false, n, offset);
      check<TypeParam>(exec::LambDirection::make(kFields, kStep), true, n, offset);
      check<TypeParam>(exec::MuonMomentum{0.9f, 0.1f, 0.5f, true}, true, n, offset);
      check<TypeParam>(exec::MuonStep{0.1f, 0.99f}, false, n, offset);
      check<TypeParam>(exec::AdamwUpdate::make(kFields, kStep), true, n, offset);
      check<TypeParam>(exec::AdamUpdate::make(kFields, kStep), true, n, offset);
      check<TypeParam>(exec::LionUpdate::make(LionFields{0.9, 0.99, 0.1}, kStep), true, n, offset);
    }
  }
}

// Moments of two bytes, whose slices begin within their parameters.
TYPED_TEST(CudaOptimizersTest, RoundsMomentsAsTheCpuDoes) {
  const exec::MomentRounding rounding = {7, 12};
  const auto check =
      [&](const exec::OptimizerUpdate& constants, bool two, int64_t n, int64_t offset) {
        struct Buffers {
          Buffers(int64_t n, int64_t offset)
              : p(n, offset), g(n, offset), m(n, offset), v(n, offset) {
            test::fill_uniform(p, -1, 1, 1);
            test::fill_uniform(g, -1, 1, 2);
            test::fill_stored(m, -1, 1, 3);
            test::fill_stored(v, 0, 1, 4);
          }
          Guarded<float> p, g;
          Guarded<BFloat16> m, v;
        };
        Buffers gpu(n, offset), cpu(n, offset);
        Guarded<TypeParam> stored(n, offset);
        const auto slice = [&](Buffers& buffers) {
          return exec::OptimizerSlice{.elements = n,
                                      .parameters = buffers.p.data(),
                                      .gradients = buffers.g.data(),
                                      .first_moment = buffers.m.data(),
                                      .second_moment = two ? buffers.v.data() : nullptr,
                                      .moment_dtype = DType::kBF16,
                                      .rounding = &rounding,
                                      .parameter = 5,
                                      .first_element = 1234};
        };
        exec::OptimizerSlice on_gpu = slice(gpu);
        if (!std::is_same_v<TypeParam, float>) on_gpu.stored = stored.data();
        cuda::PlacedSlice table[1];
        const uint32_t blocks =
            cuda::place_slices({&on_gpu, 1}, {&constants, 1}, &constants, table, &rounding);
        cuda::optimizer_update<TypeParam, BFloat16>(table, 1, blocks, nullptr, nullptr);
        cpu::optimizer_update(constants, slice(cpu));
        test::expect_same_bits(cpu.p, gpu.p, "parameters");
        test::expect_same_bits(cpu.g, gpu.g, "gradients");
        test::expect_same_bits(test::as_doubles(cpu.m), test::as_doubles(gpu.m), "first moments");
        test::expect_same_bits(test::as_doubles(cpu.v), test::as_doubles(gpu.v), "second moments");
      };
  for (int64_t n : {1, 1027, 4096}) {
    for (int64_t offset : {0, 1}) {
      check(exec::AdamwUpdate::make(kFields, kStep), true, n, offset);
      check(exec::LambDirection::make(kFields, kStep), true, n, offset);
      check(exec::SgdUpdate{0.1f, 0.9f, 0.01f, 0.5f, true}, false, n, offset);
      check(exec::MuonMomentum{0.9f, 0.1f, 0.5f, true}, false, n, offset);
    }
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
                               .first_moment = m_cpu.data() + at,
                               .second_moment = v_cpu.data() + at};
    cpu::optimizer_update(groups[i % 2], slice);
    slice.parameters = p.data() + at;
    slice.first_moment = m.data() + at;
    slice.second_moment = v.data() + at;
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
