// How fast the CPU's convolutions are, on the layers of residual networks: GFLOP/s of each pass and
// its share of the FMA peak, which is measured right before and after. FLOPs are those of the
// direct convolution, whatever the algorithm. One thread; times are those that the thread had its
// CPU, medians of the repeats.
//
//   [LOCKSTEP_SIMD=AVX2] conv2d_speed [REPEATS [PART_OF_A_NAME [BF16]]]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/simd_level.h"
#include "tests/peers/cpu_time.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/peers/conv2d_speed.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::peers {
namespace HWY_NAMESPACE {

// As in fma_peak.cc: independent chains of multiply-adds that live in registers.
double multiply_add_kernel(int64_t rounds, float half, float* sink) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kChains = HWY_TARGET <= HWY_AVX3 ? 24 : 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, half);
  hn::Vec<decltype(d)> chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(kChains)
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, factor);
  }
  auto sum = chain[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  *sink = hn::GetLane(sum);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::peers
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::peers {
namespace {

HWY_EXPORT(multiply_add_kernel);

struct Layer {
  const char* name;
  graph::Conv2dShape shape;
};

constexpr graph::Conv2dShape square(int64_t batch,
                                    int64_t extent,
                                    int64_t channels,
                                    int64_t outputs,
                                    int64_t kernel,
                                    int64_t stride) {
  return {.batch = batch,
          .height = extent,
          .width = extent,
          .channels = channels,
          .outputs = outputs,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .pad_h = kernel / 2,
          .pad_w = kernel / 2};
}

// The same with groups.
constexpr graph::Conv2dShape grouped(graph::Conv2dShape shape, int64_t groups) {
  shape.groups = groups;
  return shape;
}

constexpr Layer kLayers[] = {
    {"cifar stem 3x3x3->64", square(64, 32, 3, 64, 3, 1)},
    {"cifar 32x32 64", square(64, 32, 64, 64, 3, 1)},
    {"cifar 16x16 128", square(64, 16, 128, 128, 3, 1)},
    {"cifar 8x8 256", square(64, 8, 256, 256, 3, 1)},
    {"cifar 4x4 512", square(64, 4, 512, 512, 3, 1)},
    {"cifar 32x32 64->128 /2", square(64, 32, 64, 128, 3, 2)},
    {"cifar 8x8 256->512 /2", square(64, 8, 256, 512, 3, 2)},
    {"cifar 1x1 64->128 /2", square(64, 32, 64, 128, 1, 2)},
    {"small 32x32 64", square(8, 32, 64, 64, 3, 1)},
    {"small 16x16 128", square(8, 16, 128, 128, 3, 1)},
    {"small 8x8 256", square(8, 8, 256, 256, 3, 1)},
    {"small 4x4 512", square(8, 4, 512, 512, 3, 1)},
    {"resnet20 32x32 16", square(64, 32, 16, 16, 3, 1)},
    {"resnet20 16x16 32", square(64, 16, 32, 32, 3, 1)},
    {"imagenet stem 7x7x3->64 /2", square(8, 224, 3, 64, 7, 2)},
    {"imagenet 56x56 1x1 64->64", square(8, 56, 64, 64, 1, 1)},
    {"imagenet 56x56 64", square(8, 56, 64, 64, 3, 1)},
    {"imagenet 56x56 1x1 64->256", square(8, 56, 64, 256, 1, 1)},
    {"imagenet 56x56 1x1 256->64", square(8, 56, 256, 64, 1, 1)},
    {"imagenet 56x56 128 /2", square(8, 56, 128, 128, 3, 2)},
    {"imagenet 56x56 1x1 256->512 /2", square(8, 56, 256, 512, 1, 2)},
    {"imagenet 14x14 1x1 1024->2048 /2", square(8, 14, 1024, 2048, 1, 2)},
    {"imagenet 14x14 1x1 1024->256", square(8, 14, 1024, 256, 1, 1)},
    {"imagenet 28x28 128", square(8, 28, 128, 128, 3, 1)},
    {"imagenet 28x28 1x1 512->128", square(8, 28, 512, 128, 1, 1)},
    {"imagenet 14x14 256", square(8, 14, 256, 256, 3, 1)},
    {"imagenet 14x14 1x1 256->1024", square(8, 14, 256, 1024, 1, 1)},
    {"imagenet 7x7 512", square(8, 7, 512, 512, 3, 1)},
    {"imagenet 7x7 1x1 512->2048", square(8, 7, 512, 2048, 1, 1)},
    {"groups of 4, 56x56 128", grouped(square(8, 56, 128, 128, 3, 1), 32)},
    {"groups of 32, 7x7 1024", grouped(square(8, 7, 1024, 1024, 3, 1), 32)},
    {"depthwise 112x112 32", grouped(square(8, 112, 32, 32, 3, 1), 32)},
    {"depthwise 14x14 576", grouped(square(8, 14, 576, 576, 3, 1), 576)}};

double peak_gflops() {
  volatile float half = 0.5f, sink;
  float result;
  const double begin = cpu_seconds();
  const double operations = HWY_DYNAMIC_DISPATCH(multiply_add_kernel)(200'000, half, &result);
  const double seconds = cpu_seconds() - begin;
  sink = result;
  static_cast<void>(sink);
  return operations / seconds * 1e-9;
}

// GFLOP/s and the share of the peak, medians.
struct Speed {
  double gflops, share;
};

Speed measure(double flops, int repeats, const std::function<void()>& pass) {
  pass();
  std::vector<double> speeds, shares;
  for (int i = 0; i < repeats; ++i) {
    const double before = peak_gflops();
    const double begin = cpu_seconds();
    int passes = 0;
    double seconds = 0;
    for (; seconds < 0.03; ++passes) {
      pass();
      seconds = cpu_seconds() - begin;
    }
    const double speed = passes * flops / seconds * 1e-9;
    const double peak = (before + peak_gflops()) / 2;
    speeds.push_back(speed);
    shares.push_back(speed / peak);
  }
  return {median(speeds), median(shares)};
}

template <typename T>
std::vector<T> random_numbers(int64_t n) {
  const std::vector<float> floats = random_floats(n);
  std::vector<T> numbers(floats.size());
  std::transform(
      floats.begin(), floats.end(), numbers.begin(), [](float x) { return round_to<T>(x); });
  return numbers;
}

template <typename T>
void run_layer(const Layer& layer, int repeats) {
  const graph::Conv2dShape& s = layer.shape;
  const int64_t weights = s.kernel_h * s.kernel_w * s.group_channels();
  std::vector<T> x = random_numbers<T>(s.batch * s.height * s.width * s.channels), d_x = x;
  const std::vector<T> w = random_numbers<T>(s.outputs * weights);
  std::vector<float> d_w(w.size());
  std::vector<T> y = random_numbers<T>(s.out_pixels() * s.outputs);
  const std::vector<T> d_y = y;
  const std::vector<float> bias = random_floats(s.outputs);
  const int64_t bytes = (cpu::conv2d_workspace_bytes<T>(s, 1) + 63) / 64 * 64;
  void* const workspace = std::aligned_alloc(64, std::max<int64_t>(64, bytes));
  std::memset(workspace, 0, bytes);
  const graph::Conv2dBackward<T> backward = {.shape = s,
                                             .accumulate_weight = false,
                                             .accumulate_bias = false,
                                             .d_y = d_y.data(),
                                             .x = x.data(),
                                             .weight = w.data(),
                                             .d_x = d_x.data(),
                                             .d_weight = d_w.data(),
                                             .d_bias = nullptr,
                                             .workspace = static_cast<std::byte*>(workspace)};
  const double flops = 2.0 * static_cast<double>(s.out_pixels() * s.outputs * weights);
  const Speed speeds[] = {
      measure(flops,
              repeats,
              [&] {
                cpu::conv2d_forward<T>(
                    {.shape = s,
                     .x = x.data(),
                     .w = w.data(),
                     .epilogue = {.bias = bias.data(), .activation = Activation::kRelu},
                     .y = y.data()},
                    workspace);
              }),
      measure(flops, repeats, [&] { cpu::conv2d_backward_input(backward); }),
      measure(flops, repeats, [&] { cpu::conv2d_backward_weight(backward); })};
  std::printf("%-31s %8.1f", layer.name, flops * 1e-6);
  for (const Speed& speed : speeds) std::printf("  %6.1f %5.1f%%", speed.gflops, 100 * speed.share);
  std::printf("  %8.0f\n", static_cast<double>(bytes) / 1024);
  std::fflush(stdout);
  std::free(workspace);
}

int run(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 5;
  const bool bf16 = argc > 3 && std::string(argv[3]) == "BF16";
  if (argc > 4 || (argc > 3 && !bf16) || repeats < 1) {
    std::fprintf(stderr, "usage: conv2d_speed [REPEATS [PART_OF_A_NAME [BF16]]]\n");
    return 2;
  }
  cpu::simd_level();  // limits the kernels to LOCKSTEP_SIMD
  set_compute_threads(1);
  std::printf("%-31s %8s  %14s  %14s  %14s  %8s\n",
              "layer",
              "MFLOP",
              "forward",
              "backward input",
              "backward weight",
              "KiB");
  for (const Layer& layer : kLayers) {
    if (argc < 3 || std::string(layer.name).find(argv[2]) != std::string::npos) {
      bf16 ? run_layer<BFloat16>(layer, repeats) : run_layer<float>(layer, repeats);
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::peers

int main(int argc, char** argv) { return lockstep::peers::run(argc, argv); }
#endif  // HWY_ONCE
