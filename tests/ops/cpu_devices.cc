// The CPU, in the ways that must give the same bits.
#include "runtime/cpu/matmul/bf16_dot.h"
#include "tests/ops/devices.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::test {

std::vector<OpDevice> cpu_devices() {
  const auto plain_run = [](const exec::Implementation& implementation,
                            const graph::Graph& graph,
                            const graph::Op& op,
                            std::byte* const* tensors,
                            std::byte* workspace,
                            const graph::LaneContext& lane) {
    implementation.run(graph::OpCall(graph, op, tensors, workspace, lane, nullptr));
  };
  const auto way = [](std::string name, int64_t target, int threads) {
    return Way{name + ", " + std::to_string(threads) + " threads",
               [=](const std::function<void()>& f) {
                 ScopedTarget chosen(target);
                 ScopedThreads scope(threads);
                 f();
               }};
  };
  OpDevice vectors = {.name = "cpu",
                      .implementations = [](const OpTest& test) { return test.cpu; },
                      .types = {DType::kF32, DType::kBF16},
                      .ways = {},
                      // Units that this processor lacks are emulated.
                      .available = [](const exec::Implementation&,
                                      const graph::Graph&,
                                      const graph::Op&) { return true; },
                      .run = plain_run};
  OpDevice baseline = vectors;
  // With sanitizers one number has to do: that all give the same bits is tested without them.
  for (const int threads : sanitized() ? std::vector{3} : std::vector{1, 2, 3}) {
    for (const int64_t target : {HWY_AVX3, HWY_AVX2}) {
      if (cpu_has(target)) vectors.ways.push_back(way(hwy::TargetName(target), target, threads));
    }
    // A target of which there is no copy leaves plain x86-64.
    baseline.ways.push_back(way("baseline", HWY_SCALAR, threads));
  }
  if (cpu_has(HWY_AVX3) && cpu::ScopedBf16Dot::available()) {
    Way dots = way("AVX512-BF16", HWY_AVX3, 2);
    vectors.ways.push_back({dots.name, [=](const std::function<void()>& f) {
                              const cpu::ScopedBf16Dot scope;
                              dots.with(f);
                            }});
  }
  baseline.name = "cpu baseline";
  baseline.has_fma = false;
  if (vectors.ways.empty()) return {baseline};
  return {vectors, baseline};
}

}  // namespace lockstep::test
