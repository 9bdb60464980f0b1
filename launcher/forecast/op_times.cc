#include "launcher/forecast/op_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/graph/op_kind.h"

namespace lockstep::forecast {
namespace {

using graph::OpKind;

// Assumed, for kernels without a measurement. Products: at their power limit GPUs reach 60 to 75%
// of the peak in large ones (launcher/published); NVIDIA's model of products, which
// tests/peers/compare_roofline.py asks, has them at 1 to 1.7 times the least time. Attention:
// FlashAttention 2 and 3 publish 35% to 75% of the peak. Memory: a copy reaches some 90%.
constexpr Efficiency kGpu = {.large_products = {0.45, 0.75},
                             .convolutions = {0.30, 0.60},
                             .attention = {0.30, 0.60},
                             .functions = {0.20, 0.60},
                             .memory = {0.60, 0.90},
                             .overhead_us = {1.5, 5}};
// What this program's kernels reach on the machines of BENCHMARKS.md.
constexpr Efficiency kCpu = {.large_products = {0.70, 0.92},
                             .convolutions = {0.55, 0.90},
                             .attention = {0.30, 0.70},
                             .functions = {0.10, 0.16},
                             .memory = {0.60, 0.95},
                             .overhead_us = {0.3, 2}};

constexpr double kTera = 1e12, kGiga = 1e9;

// The share of a GPU's multiprocessors and of their tiles that a product keeps at work: it is cut
// into tiles, which the multiprocessors take in waves. A product with few tiles may be cut along
// its depth too.
double tile_share(const Product& product, int64_t multiprocessors) {
  constexpr int64_t kTile = 128;
  constexpr int64_t kMinDepth = 512;  // of a part
  const auto tiles_of = [](int64_t extent) { return (extent + kTile - 1) / kTile; };
  int64_t tiles = tiles_of(product.m) * tiles_of(product.n) * product.groups;
  const double full =
      static_cast<double>(product.m) * static_cast<double>(product.n) /
      static_cast<double>(tiles_of(product.m) * tiles_of(product.n) * kTile * kTile);
  if (tiles < multiprocessors) {
    const int64_t parts = std::clamp<int64_t>(
        product.k / kMinDepth, 1, std::max<int64_t>(1, multiprocessors / tiles));
    tiles *= parts;
  }
  const int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
  return full * static_cast<double>(tiles) / static_cast<double>(waves * multiprocessors);
}

double log_distance(double a, double b) { return std::abs(std::log2((a + 1) / (b + 1))); }

}  // namespace

std::string Arithmetic::name(DType type) const {
  if (type == DType::kF32 && bf16x3) return "BF16X3";
  if (type == DType::kF32 && tf32) return "TF32";
  switch (type) {
    case DType::kBF16: return "BF16";
    case DType::kF16: return "FP16";
    default: return "FP32";
  }
}

const Efficiency& efficiency_of(const Hardware& hardware) {
  return hardware.kind == Hardware::Kind::kGpu ? kGpu : kCpu;
}

std::optional<cuda::KernelGpu> gpu_of(const Hardware& hardware, const Arithmetic& arithmetic) {
  if (hardware.kind != Hardware::Kind::kGpu) return std::nullopt;
  return cuda::KernelGpu{static_cast<int>(hardware.gpu.capability), arithmetic.tf32};
}

double peak_flops(const Hardware& hardware, const Arithmetic& arithmetic, DType type) {
  const double fp32 = hardware.fp32_tflops;
  double tflops = fp32;
  switch (type) {
    case DType::kBF16: tflops = hardware.bf16_tflops; break;
    case DType::kF16: tflops = hardware.fp16_tflops; break;
    default:
      if (arithmetic.tf32) tflops = hardware.tf32_tflops;
      // A product of floats takes six products of bfloat16.
      if (arithmetic.bf16x3) tflops = std::max(fp32, hardware.bf16_tflops / 6);
  }
  return (tflops > 0 ? tflops : fp32) * kTera;
}

// What measurements are compared with.
struct OpTimes::Sought {
  std::string op, type;
  std::vector<int64_t> extents;
  double flops, bytes;
  bool sums = false;  // over lanes and ranks, whose number is among the extents

  double distance(const MeasuredOp& other) const {
    if (other.extents.size() != extents.size()) return std::numeric_limits<double>::infinity();
    double distance = log_distance(flops, other.flops) + log_distance(bytes, other.bytes);
    for (size_t i = 0; i < extents.size(); ++i)
      distance +=
          log_distance(static_cast<double>(extents[i]), static_cast<double>(other.extents[i]));
    return distance;
  }
};

OpTimes::OpTimes(const Hardware& hardware,
                 const Arithmetic& arithmetic,
                 const NodeUse& use,
                 const std::vector<KnownTime>* known)
    : hardware_(hardware), arithmetic_(arithmetic), use_(use), known_(known) {}

double OpTimes::share() const {
  if (hardware_.kind == Hardware::Kind::kGpu) return 1;
  return std::min(1.0,
                  static_cast<double>(use_.threads) / static_cast<double>(hardware_.cpu.cores));
}

bool OpTimes::measured(const Sought& sought, OpTime* time) const {
  if (known_ != nullptr) {
    const auto found = std::ranges::find_if(*known_, [&](const KnownTime& known) {
      return known.is(sought.op, sought.type, sought.extents, sought.flops, sought.bytes);
    });
    if (found != known_->end()) {
      *time = {found->seconds, true};
      return true;
    }
  }
  struct Near {
    double distance = std::numeric_limits<double>::infinity();
    const MeasuredOp* op = nullptr;
  };
  std::array<Near, 2> nearest;
  for (const MeasuredOp& op : hardware_.ops) {
    if (op.op != sought.op || op.type != sought.type) continue;
    // Another number of threads is like another size, but much further away.
    constexpr double kThreads = 8;
    Near near = {sought.distance(op) + kThreads * log_distance(static_cast<double>(op.threads),
                                                               static_cast<double>(use_.threads)),
                 &op};
    for (Near& place : nearest)
      if (near.distance < place.distance) std::swap(near, place);
  }
  if (nearest[0].op == nullptr) return false;
  double weights = 0, seconds = 0;
  for (const Near& near : nearest) {
    if (near.op == nullptr || std::isinf(near.distance)) continue;
    const double flops = sought.flops, bytes = sought.bytes;
    // Some 4 operations a byte are the border between what is bound by memory and what is not.
    const bool by_flops = flops > 4 * bytes && near.op->flops > 0;
    double factor = by_flops             ? flops / near.op->flops
                    : near.op->bytes > 0 ? bytes / near.op->bytes
                                         : 1;
    factor *= static_cast<double>(near.op->threads) / static_cast<double>(use_.threads);
    const double weight = 1 / (near.distance * near.distance + 1e-6);
    weights += weight;
    seconds += weight * near.op->us * 1e-6 * factor;
  }
  seconds /= weights;
  // Other ranks of the node use its memory too, beyond what a copy reaches: that also reads what it
  // overwrites. What is smaller than this stays in caches. Sums have been measured on such ranks.
  constexpr double kCached = 64e6, kOfCopy = 1.3;
  if (hardware_.kind == Hardware::Kind::kCpu && sought.bytes > kCached && !sought.sums)
    seconds = std::max(
        seconds, sought.bytes * use_.ranks / (kOfCopy * hardware_.memory_gbytes_per_s * kGiga));
  // Repeated measurements differ by some percent, and sizes in between do not lie on a line.
  constexpr double kRepeats = 0.03, kEachDoubling = 0.03, kMost = 0.5;
  const double width = std::min(kMost, kRepeats + kEachDoubling * nearest[0].distance);
  *time = {{seconds * (1 - width), seconds * (1 + width)}, true};
  return true;
}

double OpTimes::least_seconds(const OpWork& work, const Product& product) const {
  return std::max(product.flops() / (peak_flops(hardware_, arithmetic_, work.type) * share()),
                  product.bytes / (hardware_.memory_gbytes_per_s * kGiga * share()));
}

double OpTimes::least_seconds(const OpWork& work) const {
  double seconds = 0;
  for (const Product& product : work.products)
    seconds += static_cast<double>(product.repeats) * least_seconds(work, product);
  const double peak = work.rest_multiplies ? peak_flops(hardware_, arithmetic_, work.type)
                                           : hardware_.fp32_tflops * kTera;
  return seconds + std::max(work.rest_flops / (peak * share()),
                            work.rest_bytes / (hardware_.memory_gbytes_per_s * kGiga * share()));
}

Range OpTimes::roofline(const OpWork& work) const {
  const Efficiency& shares = efficiency_of(hardware_);
  const double peak = peak_flops(hardware_, arithmetic_, work.type) * share();
  const double memory = hardware_.memory_gbytes_per_s * kGiga * share();
  const auto at = [&](double flops, double bytes, double rate, const Range& of_rate) -> Range {
    return {std::max(flops / (rate * of_rate.high), bytes / (memory * shares.memory.high)),
            std::max(flops / (rate * of_rate.low), bytes / (memory * shares.memory.low))};
  };
  Range seconds;
  int64_t kernels = 0;
  double product_bytes = 0;
  for (const Product& product : work.products) {
    const double tiles =
        hardware_.kind == Hardware::Kind::kGpu
            ? tile_share(product, std::max<int64_t>(1, hardware_.gpu.multiprocessors))
            : 1;
    const Range& share = product.convolution ? shares.convolutions : shares.large_products;
    seconds += at(product.flops(), product.bytes, peak * tiles, share) *
               static_cast<double>(product.repeats);
    kernels += product.repeats;
    product_bytes += product.bytes * static_cast<double>(product.repeats);
  }
  const bool has_rest = work.rest_flops > 0 || work.rest_bytes > 0;
  double rest_bytes = work.rest_bytes;
  bool multiplies = work.rest_multiplies;
  if (work.kernels) {
    rest_bytes = std::max(0.0, work.kernels->bytes - product_bytes);
    multiplies = multiplies && work.kernels->tensor_flops > 0;
    kernels = work.kernels->launches;
  } else if (has_rest) {
    ++kernels;
  }
  if (has_rest || rest_bytes > 0) {
    const double rate = multiplies ? peak : hardware_.fp32_tflops * kTera * share();
    seconds += at(work.rest_flops,
                  rest_bytes,
                  rate,
                  work.rest_multiplies ? shares.attention : shares.functions);
  }
  return seconds + shares.overhead_us * (1e-6 * static_cast<double>(kernels));
}

OpTime OpTimes::time(const OpWork& work) const {
  if (work.products.empty() && work.rest_bytes == 0) return {};
  OpTime time;
  const Sought sought = {
      work.measured_name(), arithmetic_.name(work.type), work.extents, work.flops(), work.bytes()};
  if (measured(sought, &time)) return time;
  return {roofline(work), false};
}

OpTime OpTimes::time(const std::string& name,
                     double bytes,
                     const std::vector<int64_t>& extents) const {
  OpTime time;
  const std::string type = arithmetic_.name(arithmetic_.compute);
  if (measured({name, type, extents, 0, bytes, !extents.empty()}, &time)) return time;
  const Range& share = efficiency_of(hardware_).memory;
  const double least = bytes / (hardware_.memory_gbytes_per_s * kGiga * this->share());
  return {{least / share.high, least / share.low}, false};
}

}  // namespace lockstep::forecast
