// How fast the products of linear layers are, of the shapes of language models: GFLOP/s of each
// pass on one thread, the forward one without and with a bias, and its share of the peak of fused
// multiply-adds, which is measured before each round, because clocks differ from second to second.
// A layer's operands and results come from main memory, as in a training step: there are several
// sets of them, used in turn. Times are those that the thread had its CPU, medians of the repeats,
// each a round of all sets.
//
//   [LOCKSTEP_SIMD=AVX2] linear_speed [REPEATS]
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/peak.h"
#include "runtime/cpu/simd_level.h"
#include "tests/peers/cpu_time.h"

namespace lockstep::peers {
namespace {

constexpr graph::LinearShape kShapes[] = {{.rows = 256, .inputs = 768, .outputs = 3072},
                                          {.rows = 256, .inputs = 3072, .outputs = 768},
                                          {.rows = 512, .inputs = 576, .outputs = 576},
                                          {.rows = 512, .inputs = 576, .outputs = 960},
                                          {.rows = 512, .inputs = 576, .outputs = 3072},
                                          {.rows = 512, .inputs = 1536, .outputs = 576},
                                          {.rows = 512, .inputs = 576, .outputs = 49152},
                                          {.rows = 1024, .inputs = 768, .outputs = 3072},
                                          {.rows = 2048, .inputs = 2048, .outputs = 2048}};
constexpr int64_t kSetsFloats = int64_t{1} << 27;  // of all sets: more than a processor's caches

// Operands and results of all passes.
struct Set {
  explicit Set(const graph::LinearShape& s)
      : x(random_floats(s.rows * s.inputs)),
        d_x(x),
        w(random_floats(s.outputs * s.inputs)),
        d_w(w),
        y(random_floats(s.rows * s.outputs)),
        d_y(y) {}
  std::vector<float> x, d_x, w, d_w, y, d_y;
};

struct Speed {
  double gflops;  // a second
  double share;   // of the peak
};

// The speed of a pass over every set.
Speed measure(const graph::LinearShape& s,
              std::vector<Set>& sets,
              int repeats,
              const std::function<void(Set& set)>& pass) {
  const double flops = 2.0 * static_cast<double>(s.rows * s.inputs * s.outputs * sets.size());
  std::vector<double> speeds, shares;
  for (int i = 0; i <= repeats; ++i) {
    const double peak = cpu::measure_peak_flops();
    const double begin = cpu_seconds();
    for (Set& set : sets) pass(set);
    if (i == 0) continue;
    speeds.push_back(flops / (cpu_seconds() - begin));
    shares.push_back(speeds.back() / peak);
  }
  return {median(speeds) * 1e-9, median(shares)};
}

void run_shape(const graph::LinearShape& s, int repeats) {
  const int64_t floats = 2 * (s.rows * s.inputs + s.outputs * s.inputs + s.rows * s.outputs);
  std::vector<Set> sets(std::max<int64_t>(2, kSetsFloats / floats), Set(s));
  const int64_t bytes = (cpu::linear_workspace_bytes(s, 1) + 63) / 64 * 64;
  void* const workspace = std::aligned_alloc(64, bytes);
  const auto backward = [&](Set& set) {
    return graph::LinearBackward<float>{.shape = s,
                                        .stride = s.outputs,
                                        .padded_outputs = s.outputs,
                                        .accumulate_weight = false,
                                        .accumulate_bias = false,
                                        .input_activation = Activation::kNone,
                                        .d_y = set.d_y.data(),
                                        .x = set.x.data(),
                                        .weight = set.w.data(),
                                        .saved = nullptr,
                                        .d_x = set.d_x.data(),
                                        .d_weight = set.d_w.data(),
                                        .d_bias = nullptr,
                                        .workspace = static_cast<std::byte*>(workspace)};
  };
  const std::vector<float> bias = random_floats(s.outputs);
  const auto forward = [&](Set& set, const float* bias_of_layer) {
    cpu::linear_forward<float>({.shape = s,
                                .x = {set.x.data(), s.inputs},
                                .w = {set.w.data(), s.inputs},
                                .epilogue = {.bias = bias_of_layer},
                                .y = set.y.data()},
                               workspace);
  };
  const std::string name =
      std::to_string(s.rows) + "x" + std::to_string(s.outputs) + "x" + std::to_string(s.inputs);
  std::printf("%-24s", name.c_str());
  const std::function<void(Set&)> passes[] = {
      [&](Set& set) { forward(set, nullptr); },
      [&](Set& set) { forward(set, bias.data()); },
      [&](Set& set) { cpu::linear_forward(cpu::linear_input_gradient(backward(set)), workspace); },
      [&](Set& set) { cpu::linear_backward_weight(backward(set)); }};
  for (const std::function<void(Set&)>& pass : passes) {
    const Speed speed = measure(s, sets, repeats, pass);
    std::printf("  %8.1f %4.0f%%", speed.gflops, 100 * speed.share);
  }
  std::printf("\n");
  std::fflush(stdout);
  std::free(workspace);
}

int run(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 5;
  if (argc > 2 || repeats < 1) {
    std::fprintf(stderr, "usage: linear_speed [REPEATS]\n");
    return 2;
  }
  cpu::simd_level();  // limits the kernels to LOCKSTEP_SIMD
  set_compute_threads(1);
  std::printf("%-24s  %-14s  %-14s  %-14s  %-14s\n",
              "rows x outputs x inputs",
              " forward",
              " with bias",
              " d_x",
              " d_weight");
  for (const graph::LinearShape& shape : kShapes) run_shape(shape, repeats);
  return 0;
}

}  // namespace
}  // namespace lockstep::peers

int main(int argc, char** argv) { return lockstep::peers::run(argc, argv); }
