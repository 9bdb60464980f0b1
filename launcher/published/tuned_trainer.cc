#include "launcher/published/tuned_trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::published {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kMilli = 1e-3;

struct Generation {
  double share = 0;  // of the peak in 16 bits
  double watts = 0;  // at which it has the share; 0: whatever the watts
};

Generation generation_of(const TrainerCase& trainer) {
  const Hardware& hardware = trainer.hardware;
  const TrainerConstants& constants = trainer.constants;
  if (hardware.kind == Hardware::Kind::kCpu) return {constants.amx, 0};
  switch (hardware.gpu.capability) {
    case 60:  // without tensor cores
    case 70:
    case 75: return {constants.volta, 300};
    case 80: return {constants.ampere, 400};
    case 90: return {constants.hopper, 700};
    case 100:
    case 103: return {constants.blackwell, 1000};
    default: break;
  }
  // GeForce cards have tensor cores of twice the FP32 rate, others of four times.
  constexpr double kManyTensorCores = 3.5;
  const bool many = hardware.fp16_tflops > kManyTensorCores * hardware.fp32_tflops;
  return {hardware.gpu.capability > 86 && many ? constants.ada : constants.geforce, 350};
}

// The units that compute the products of a case.
struct Units {
  bool cores = false;     // FP32, without tensor cores or tiles
  double peak = 0;        // TFLOP/s
  double rate = 0;        // operations a second that large products reach
  double half_depth = 0;  // k at which they reach half of it
  double multiprocessors = 1;
  double memory = 0;  // bytes a second
  double element_bytes = 4;
};

Units units_of(const TrainerCase& trainer) {
  const TrainerConstants& constants = trainer.constants;
  const Hardware& hardware = trainer.hardware;
  const bool cpu = hardware.kind == Hardware::Kind::kCpu;
  const Generation generation = generation_of(trainer);
  const double half = hardware.bf16_tflops > 0 ? hardware.bf16_tflops : hardware.fp16_tflops;
  const bool tensor_cores =
      cpu ? hardware.cpu.units == CpuFigures::Units::kAmx : hardware.gpu.capability >= 70;
  const double peak = trainer.arithmetic == Arithmetic::kHalf   ? half
                      : trainer.arithmetic == Arithmetic::kTf32 ? hardware.tf32_tflops
                                                                : 0;
  Units units;
  units.cores = peak == 0 || !tensor_cores;
  units.peak = units.cores ? hardware.fp32_tflops : peak;
  double share =
      units.cores ? (cpu ? constants.fp32_vectors : constants.fp32_cores) : generation.share;
  if (!units.cores && trainer.arithmetic == Arithmetic::kTf32) share *= constants.tf32;
  if (!trainer.software.native_products && hardware.gpu.capability >= 90)
    share *= constants.old_products;
  if (generation.watts > 0) share *= std::pow(hardware.watts / generation.watts, constants.clock);
  units.rate = units.peak * kTera * share;
  units.multiprocessors =
      std::max(1.0, static_cast<double>(cpu ? hardware.cpu.cores : hardware.gpu.multiprocessors));
  // The depth is a time: the faster a multiprocessor, the deeper.
  constexpr double kA100 = 312.0 / 108;
  if (!cpu) units.half_depth = constants.depth * units.peak / units.multiprocessors / kA100;
  units.memory = hardware.memory_gbytes_per_s * kGiga * constants.memory;
  units.element_bytes = trainer.arithmetic == Arithmetic::kHalf ? 2 : 4;
  return units;
}

struct Tile {
  double m, n;
};

// The rate of a tile relative to the largest: small ones read more for each operation.
double rate_of(const Tile& tile) {
  constexpr double kRead = 24;  // the sum of 1 / m and 1 / n that costs as much as computing
  constexpr Tile kLargest = {256, 128};
  const auto time = [](const Tile& each) { return 1 + kRead * (1 / each.m + 1 / each.n); };
  return time(kLargest) / time(tile);
}

// The share of the largest tile's rate that a product keeps, by the best tile: of tiles that reach
// over its end, and of the last wave of tiles, which few multiprocessors compute. Deep products are
// cut along k, too.
double tile_share(double m, double n, double k, double count, double multiprocessors) {
  constexpr std::array<Tile, 8> kTiles = {
      {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}, {128, 32}, {32, 128}}};
  constexpr double kMinDepth = 512, kMaxParts = 64;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * count;
    const double useful = m * n * count / (tiles * tile.m * tile.n) * rate_of(tile);
    for (double parts = 1; parts == 1 || (k / parts >= kMinDepth && parts <= kMaxParts);
         parts *= 2) {
      const double units = tiles * parts;
      const double waves = std::ceil(units / multiprocessors);
      best = std::max(best, useful * units / (waves * multiprocessors));
    }
  }
  return best;
}

struct Times {
  double forward = 0, backward = 0;
  double kernels = 0;
};

class MicroBatch {
 public:
  explicit MicroBatch(const TrainerCase& trainer)
      : trainer_(trainer),
        constants_(trainer.constants),
        units_(units_of(trainer)),
        kernel_(constants_.kernel_us * kMicro) {}

  Times all() {
    Times times;
    for (size_t i = 0; i < trainer_.network.products.size(); ++i) add_product(i, times);
    for (size_t i = 0; i < trainer_.network.walks.size(); ++i) add_walk(i, times);
    for (const Depthwise& convolution : trainer_.network.depthwise) add(convolution, times);
    for (const Attention& attention : trainer_.network.attentions) add(attention, times);
    return times;
  }

  // Forward, of the ops that recomputation does not repeat. After all().
  double head() const { return head_; }

 private:
  double bytes(double elements) const { return elements * units_.element_bytes / units_.memory; }
  double unfused() const { return trainer_.software.fusion < 2 ? constants_.unfused : 1; }

  // Between the passes at the degrees of fusion below and above the software's.
  double passes(const std::array<double, 3>& by_fusion) const {
    const double fusion = trainer_.software.fusion;
    const size_t below = fusion < 1 ? 0 : 1;
    const double part = fusion - static_cast<double>(below);
    return (1 - part) * by_fusion[below] + part * by_fusion[below + 1];
  }

  double product_seconds(const Product& product, double m, double n, double k) const {
    double share =
        tile_share(m, n, k, product.count, units_.multiprocessors) * k / (k + units_.half_depth);
    if (product.convolution) share *= constants_.convolutions;
    const bool gpu = trainer_.hardware.kind == Hardware::Kind::kGpu;
    if (product.winograd && units_.cores && gpu) share *= constants_.winograd;
    const double flops = 2 * m * n * k * product.count;
    return std::max(flops / (units_.rate * share), bytes(product.elements)) + kernel_;
  }

  void add_product(size_t index, Times& times) {
    const Product& product = trainer_.network.products[index];
    const double forward = product_seconds(product, product.m, product.n, product.k);
    times.forward += forward;
    times.kernels += 3;
    const size_t body = trainer_.network.body_products;
    if (body > 0 && index >= body) head_ += forward;
    if (product.trained)
      times.backward +=
          product_seconds(product, product.m, product.k / product.taps, product.n * product.taps) +
          product_seconds(product, product.n, product.k, product.m);
    if (product.convolution && copies_layout()) {
      const double copies = bytes(2 * product.elements) * constants_.layout;
      times.forward += copies;
      times.backward += 2 * copies;
    }
  }

  // cuDNN's batch norms of N x H x W x C in 16 bits keep their input in registers between reading
  // it for the statistics and normalising it.
  bool norms_stay_on_chip() const {
    return trainer_.arithmetic == Arithmetic::kHalf && !units_.cores &&
           trainer_.hardware.kind == Hardware::Kind::kGpu && !trainer_.software.copies_layout;
  }

  bool copies_layout() const { return trainer_.software.copies_layout && !units_.cores; }

  void add_walk(size_t index, Times& times) {
    const Walk& walk = trainer_.network.walks[index];
    double forward = passes(walk.forward), backward = passes(walk.backward);
    if (walk.batch_norm && norms_stay_on_chip()) {
      forward = std::min(forward, 2.0);
      backward = std::min(backward, 3.0);
    }
    const double kernels_forward = forward > 0 ? walk.forward_kernels : 0;
    const double kernels_backward = backward > 0 ? walk.backward_kernels : 0;
    times.forward += unfused() * bytes(walk.elements * forward) + kernel_ * kernels_forward;
    times.backward += unfused() * bytes(walk.elements * backward) + kernel_ * kernels_backward;
    times.kernels += kernels_forward + kernels_backward;
    const size_t body = trainer_.network.body_walks;
    if (body > 0 && index >= body) head_ += bytes(walk.elements * forward);
  }

  void add(const Depthwise& convolution, Times& times) const {
    const double flops = 2 * convolution.output * convolution.taps;
    const double seconds =
        std::max(bytes(convolution.input + convolution.output),
                 flops / (trainer_.hardware.fp32_tflops * kTera * constants_.depthwise));
    times.forward += seconds + kernel_;
    times.backward += 2 * (seconds + kernel_);
  }

  void add(const Attention& attention, Times& times) const {
    const Software& software = trainer_.software;
    const auto& [heads, queries, keys, size, causal] = attention;
    const double scores = heads * queries * keys;
    const double operands = bytes(heads * 2 * (queries + keys) * size);
    if (software.attention == Software::Attention::kProducts) {
      constexpr double kSmall = 0.7;  // products of a head's size, relative to large ones
      const double products =
          2 * std::max(2 * scores * size / (units_.rate * kSmall), bytes(scores) + operands / 4);
      // Scaled, masked, softmax, dropout.
      const double fp32 = trainer_.arithmetic == Arithmetic::kHalf ? constants_.softmax : 1;
      const double forward = fp32 * passes({8.5, 3.5, 3.5});
      const double backward = fp32 * passes({7.5, 5, 5});
      times.forward += products + unfused() * bytes(scores * forward) + 6 * kernel_;
      times.backward += 2 * products + unfused() * bytes(scores * backward) + 8 * kernel_;
      return;
    }
    // Wider heads reach more. At heads of 80 the share is that of the constant.
    constexpr double kHalfSize = 32, kAtEighty = 1.4;
    double share =
        software.attention == Software::Attention::kFlash1 ? constants_.flash1 : constants_.flash2;
    share *= kAtEighty * size / (size + kHalfSize);
    if (!software.native_attention && trainer_.hardware.gpu.capability == 90)
      share *= constants_.old_attention;
    const double flops = 4 * scores * size * (causal ? 0.5 : 1);
    const double seconds = flops / (units_.rate * share) + operands;
    constexpr double kBackward = 2.5;  // five products instead of two
    times.forward += seconds + kernel_;
    times.backward += kBackward * seconds + 3 * kernel_;
  }

  const TrainerCase& trainer_;
  const TrainerConstants& constants_;
  const Units units_;
  const double kernel_;
  double head_ = 0;
};

// A ring over all devices is as slow as its slowest link. `passes`: two for an all-reduce, one for
// an all-gather or a reduce-scatter.
double collective(
    const TrainerCase& trainer, double devices, double nodes, double bytes, double passes) {
  if (devices <= 1) return 0;
  const double local = devices / nodes;
  double rate = 1e6, latency_us = 0;
  if (local > 1) {
    rate = trainer.link.gbytes_per_s;
    latency_us += trainer.link.latency_us * std::log2(std::max(2.0, local));
  }
  if (nodes > 1) {
    rate = std::min(rate, trainer.network_link.gbytes_per_s * trainer.constants.network);
    latency_us += trainer.network_link.latency_us * std::log2(nodes);
  }
  const double part = (devices - 1) / devices;
  return passes * (part * bytes / (rate * kGiga) + latency_us * kMicro);
}

// The time of a micro-batch with sharded parameters: they are gathered for forward and again for
// backward, and its gradients are scattered.
double sharded(const TrainerCase& trainer, const Times& times, TrainerStep& step) {
  const TrainerConstants& constants = trainer.constants;
  const double nodes = trainer.nodes, parameters = trainer.network.parameters;
  const bool node = trainer.sharding == Sharding::kNode;
  const double group = node ? trainer.devices / nodes : trainer.devices;
  constexpr double kGatherBytes = 2;  // of a parameter
  const double gather = collective(trainer, group, node ? 1 : nodes, kGatherBytes * parameters, 1);
  double scatter = gather * trainer.gradient_bytes / kGatherBytes;
  // The nodes sum what each has scattered.
  if (node) scatter += collective(trainer, nodes, nodes, trainer.gradient_bytes * parameters, 2);
  const double again = trainer.sharding == Sharding::kGradients ? 0 : gather;
  const auto phase = [&](double compute, double exchange) {
    return std::max(compute + constants.hidden_shards * std::min(exchange, compute), exchange);
  };
  constexpr double kFirstLayers = 0.1;  // of a gather, which nothing hides
  step.exchange = gather + again + scatter;
  const double computed =
      phase(times.forward, gather) + phase(times.backward + step.recompute, again + scatter);
  return std::max(computed, step.launches) + kFirstLayers * gather;
}

// The time of the micro-batches of a step with whole gradients, which are summed during backward of
// the last one.
double whole(const TrainerCase& trainer, const Times& times, double trained, TrainerStep& step) {
  const TrainerConstants& constants = trainer.constants;
  constexpr double kBucketBytes = 25e6;
  constexpr double kHides = 0.9;  // of backward: the first bucket takes a while
  const double bytes = trained * trainer.gradient_bytes;
  step.exchange = collective(trainer, trainer.devices, trainer.nodes, bytes, 2);
  // The last bucket is ready when backward is over, and so are the gradients of embeddings.
  const double late = trainer.network.late_parameters / trainer.network.parameters;
  const double last = std::min(1.0, std::max(kBucketBytes / bytes, late)) * step.exchange;
  const double hidden = std::min(step.exchange - last, kHides * times.backward);
  const double micro = std::max(times.forward + times.backward + step.recompute, step.launches);
  return trainer.micro_batches * micro + (step.exchange - hidden) + constants.hidden * hidden;
}

}  // namespace

TrainerStep step_of(const TrainerCase& trainer) {
  const TrainerConstants& constants = trainer.constants;
  const bool gpu = trainer.hardware.kind == Hardware::Kind::kGpu;
  MicroBatch micro_batch(trainer);
  Times times = micro_batch.all();
  TrainerStep step;
  step.recompute = trainer.recomputed * (times.forward - micro_batch.head());
  // Only the gradients of activations are computed.
  if (trainer.adapters) times.backward /= 2;
  step.forward = times.forward;
  step.backward = times.backward;
  if (gpu) step.launches = times.kernels * constants.launch_us * kMicro * trainer.software.launches;

  // Adapters have some percent of the parameters.
  const double trained = trainer.network.parameters * (trainer.adapters ? 0.01 : 1);
  const bool several = trainer.devices > 1;
  const double sharers = !several || trainer.sharding == Sharding::kNone ? 1
                         : trainer.sharding == Sharding::kNode ? trainer.devices / trainer.nodes
                                                               : trainer.devices;
  step.update = trained * trainer.update_bytes / sharers /
                (trainer.hardware.memory_gbytes_per_s * kGiga * constants.memory);
  const bool shards = trainer.sharding != Sharding::kNone && trainer.sharding != Sharding::kUpdate;
  step.seconds = several && shards ? trainer.micro_batches * sharded(trainer, times, step)
                                   : whole(trainer, times, trained, step);
  step.seconds += step.update;
  // The host works between steps, and between micro-batches whose kernels it launches.
  const double works = 1 + trainer.software.launches * (trainer.micro_batches - 1);
  if (gpu && trainer.software.host_work) step.seconds += constants.host_ms * kMilli * works;
  // The slowest of n is about sqrt(2 ln n) standard deviations behind.
  const double behind = trainer.devices > 1 ? std::sqrt(2 * std::log(trainer.devices)) : 0;
  step.seconds *= 1 + trainer.spread * behind + constants.node_spread * std::log2(trainer.nodes);
  return step;
}

std::string unjudged_because(const Hardware& hardware, Arithmetic arithmetic) {
  if (hardware.kind == Hardware::Kind::kGpu) {
    // Those of rows.tsv, and 103, which is of the generation of 100.
    constexpr int64_t kJudged[] = {60, 70, 80, 86, 89, 90, 100, 103};
    if (std::ranges::find(kJudged, hardware.gpu.capability) != std::end(kJudged)) return "";
    return fmt::format("no published figures of GPUs with compute capability {}.{}",
                       hardware.gpu.capability / 10,
                       hardware.gpu.capability % 10);
  }
  using enum CpuFigures::Units;
  const CpuFigures::Units units = hardware.cpu.units;
  if (units != kAvx512 && units != kAmx)
    return fmt::format("no published figures of CPUs with {}", name_of(units));
  if (arithmetic == Arithmetic::kHalf && units != kAmx)
    return "no published figures of 16 bits on CPUs without AMX";
  return "";
}

}  // namespace lockstep::published
