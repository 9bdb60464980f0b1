#include "launcher/bench/op_timing.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/rng.h"
#include "runtime/base/time.h"
#include "runtime/exec/op_runner.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/schema.h"

namespace lockstep::launcher {
namespace {

// Microseconds of one run of `work`: the median of `repeats` measurements of several runs each.
double time_us(exec::Backend& backend, int repeats, const std::function<void()>& work) {
  constexpr int kRuns = 50;
  const std::unique_ptr<exec::RepeatedWork> repeated = backend.repeated_work();
  const auto runs = [&] {
    for (int i = 0; i < kRuns; ++i) work();
  };
  std::vector<double> each;
  for (int i = 0; i < repeats + 2; ++i) {  // the first two are warm-up
    backend.synchronize();
    const double start = now_ms();
    repeated->run(runs);
    backend.synchronize();
    if (i >= 2) each.push_back((now_ms() - start) * 1000 / kRuns);
  }
  std::nth_element(each.begin(), each.begin() + repeats / 2, each.end());
  return each[static_cast<size_t>(repeats / 2)];
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
      timing.us = time_us(*backend, repeats, [&] { runner.run(i); });
      timing.gbytes_per_s = static_cast<double>(graph::bytes_moved(graph, op)) / timing.us / 1e3;
      timing.tflops =
          static_cast<double>(graph::schema_of(op.kind).flops(graph, op)) / timing.us / 1e6;
      timings.push_back(timing);
    }
    ++timings[at->second].count;
  }
  return timings;
}

Ceilings measure_ceilings(exec::Device& device,
                          const exec::BackendRequest& request,
                          bool bf16x3,
                          int repeats) {
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
  const int64_t size = gpu ? 8192 : 1024;
  graph::GraphOptions options(graph::Purpose::kInference);
  options.compute = request.compute;
  options.bf16x3 = bf16x3;
  graph::GraphBuilder builder(options);
  const TensorId x = ops::cast(builder, "rounded", builder.input("x", {size, size}, DType::kF32));
  const TensorId weight = builder.parameter("weight", {size, size}, {}, true);
  const TensorId bias = builder.parameter("bias", {size}, {}, false);
  builder.keep(ops::linear(builder, "product", x, weight, bias, Activation::kNone));
  const graph::Graph graph = std::move(builder).finish();
  for (const OpTiming& timing : time_ops(graph, device, request, repeats))
    ceilings.matmul_tflops = std::max(ceilings.matmul_tflops, timing.tflops);
  return ceilings;
}

}  // namespace lockstep::launcher
