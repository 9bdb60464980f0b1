#include "launcher/bench/op_timing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>

#include "runtime/base/rng.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/peak.h"
#include "runtime/exec/op_runner.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/schema.h"

namespace lockstep::launcher {
namespace {

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The peak of the units that do an op's arithmetic.
struct Peak {
  std::string units;
  std::function<double()> tflops;
};

Peak peak_of(const exec::Implementation& implementation,
             const exec::Device& device,
             const Ceilings& ceilings) {
  if (device.ops().separate_memory)
    return {"a large product", [&ceilings] { return ceilings.matmul_tflops; }};
  const std::string_view name = implementation.name;
  if (cpu::has_bf16_unit() && name == "tiles")
    return {"AMX tiles", [] { return cpu::measure_tile_flops(compute_threads()) / 1e12; }};
  // A product of floats takes six products of bfloat16.
  if (cpu::has_bf16_unit() && name == "bf16x3")
    return {"AMX tiles / 6", [] { return cpu::measure_tile_flops(compute_threads()) / 6e12; }};
  return {"multiply-adds", [] { return cpu::measure_peak_flops(compute_threads()) / 1e12; }};
}

// Microseconds of one run of `work`: the median of `repeats` measurements of several runs each,
// each after a call of `before`.
double time_us(
    exec::Backend& backend,
    int repeats,
    const std::function<void()>& work,
    const std::function<void()>& before = [] {}) {
  constexpr int kRuns = 50;
  const std::unique_ptr<exec::RepeatedWork> repeated = backend.repeated_work();
  const auto runs = [&] {
    for (int i = 0; i < kRuns; ++i) work();
  };
  std::vector<double> each;
  for (int i = 0; i < repeats + 2; ++i) {  // the first two are warm-up
    backend.synchronize();
    before();
    const double start = now_ms();
    repeated->run(runs);
    backend.synchronize();
    if (i >= 2) each.push_back((now_ms() - start) * 1000 / kRuns);
  }
  return median(each);
}

// Fills parameters and inputs with random values, then runs every op, so that all tensors have the
// values of a step.
void run_once(const graph::Graph& graph, exec::OpRunner& runner) {
  const auto fill = [&](TensorId id, double size) {
    const graph::Tensor& tensor = graph[id];
    std::vector<double> values(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t word = philox_word({11, 0, 0, static_cast<uint32_t>(id)}, i);
      switch (tensor.dtype) {
        case DType::kI32: values[i] = word % 2; break;  // ids and classes: not all the same
        case DType::kU8: values[i] = word % 256; break;
        default: values[i] = size * (2 * uniform_from_word(word) - 1);
      }
    }
    runner.write(id, values);
  };
  for (TensorId id : graph.inputs) fill(id, 1);
  for (TensorId id : graph.parameters) {
    const Shape& shape = graph.shape(id);
    const int64_t width = shape.rank() > 1 ? shape.elements() / shape[0] : shape[0];
    fill(id, 1.7 / std::sqrt(static_cast<double>(width)));
  }
  runner.begin({.seed = 1,
                .valid_rows = graph.shape(graph.inputs[graph::GraphIn::kInput])[0] *
                              graph.loss_rows_per_sample,
                .gradient_scale = 1e-4f});
  for (size_t i = 0; i < graph.ops.size(); ++i) runner.run(i);
}

std::string shapes_of(const graph::Graph& graph, const graph::Op& op) {
  std::string text;
  for (TensorId id : op.inputs) {
    if (id == kNoTensor) continue;
    if (!text.empty()) text += " ";
    text += to_string(graph.shape(id));
  }
  return text;
}

}  // namespace

std::vector<OpTiming> time_ops(const graph::Graph& graph,
                               exec::Device& device,
                               const exec::BackendRequest& request,
                               const Ceilings& ceilings,
                               int repeats) {
  const std::unique_ptr<exec::Backend> backend = device.make_backend(request);
  backend->reserve(device.ops().workspace_bytes +
                   exec::OpRunner::device_bytes(graph, device.ops()));
  exec::OpRunner runner(graph, *backend);
  run_once(graph, runner);
  std::vector<OpTiming> timings;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    OpTiming timing{graph::name_of(op.kind), shapes_of(graph, op)};
    const auto [at, fresh] = known.try_emplace(timing.op + timing.shapes, timings.size());
    if (fresh) {
      const Peak peak = peak_of(runner.implementation(i), device, ceilings);
      std::vector<double> peaks;
      timing.us = time_us(
          *backend, repeats, [&] { runner.run(i); }, [&] { peaks.push_back(peak.tflops()); });
      timing.units = peak.units;
      timing.peak_tflops = median(peaks);
      timing.gbytes_per_s = static_cast<double>(graph::bytes_moved(graph, op)) / timing.us / 1e3;
      timing.tflops =
          static_cast<double>(graph::schema_of(op.kind).flops(graph, op)) / timing.us / 1e6;
      timings.push_back(timing);
    }
    ++timings[at->second].count;
  }
  return timings;
}

Reached reached(const OpTiming& timing, const Ceilings& ceilings) {
  const double of_copy = timing.gbytes_per_s / ceilings.copy_gbytes_per_s;
  const double of_peak = timing.tflops / timing.peak_tflops;
  if (of_copy > of_peak) return {of_copy, "a large copy"};
  return {of_peak, timing.units};
}

Ceilings measure_ceilings(exec::Device& device, const exec::BackendRequest& request, int repeats) {
  const bool gpu = device.ops().separate_memory;
  Ceilings ceilings;
  {
    const size_t bytes = gpu ? size_t{512} << 20 : size_t{64} << 20;
    const std::unique_ptr<exec::Backend> backend = device.make_backend(request);
    backend->reserve(device.ops().workspace_bytes + 2 * bytes);
    std::byte* const from = backend->allocate(bytes, "the copy");
    std::byte* const to = backend->allocate(bytes, "the copy");
    const double us = time_us(*backend, repeats, [&] { backend->copy(from, to, bytes); });
    ceilings.copy_gbytes_per_s = 2 * static_cast<double>(bytes) / us / 1e3;
  }
  if (!gpu) return ceilings;
  constexpr int64_t kSize = 8192;
  graph::GraphOptions options(graph::Purpose::kInference);
  options.compute = request.compute;
  graph::GraphBuilder builder(options);
  const TensorId x = ops::cast(builder, "rounded", builder.input("x", {kSize, kSize}, DType::kF32));
  const TensorId weight = builder.parameter("weight", {kSize, kSize}, {}, true);
  const TensorId bias = builder.parameter("bias", {kSize}, {}, false);
  builder.keep(ops::linear(builder, "product", x, weight, bias, Activation::kNone));
  const graph::Graph graph = std::move(builder).finish();
  for (const OpTiming& timing : time_ops(graph, device, request, {}, repeats))
    ceilings.matmul_tflops = std::max(ceilings.matmul_tflops, timing.tflops);
  return ceilings;
}

}  // namespace lockstep::launcher
