#include "launcher/bench/bf16x3_advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/cpu/device.h"
#include "runtime/exec/op_runner.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::launcher {

double linear_layer_ms(exec::Device& device, bool bf16x3, DType compute) {
  constexpr int64_t kRows = 256, kWidth = 1024;
  constexpr int kRepeats = 5;
  graph::GraphOptions options(graph::Purpose::kInference);
  options.bf16x3 = bf16x3;
  options.compute = compute;
  graph::GraphBuilder builder(options);
  const TensorId x = builder.input("x", {kRows, kWidth}, compute);
  const TensorId weight = builder.parameter("weight", {kWidth, kWidth}, {}, true);
  const TensorId bias = builder.parameter("bias", {kWidth}, {}, false);
  builder.keep(ops::linear(builder, "product", x, weight, bias, Activation::kNone));
  const graph::Graph graph = std::move(builder).finish();
  const std::unique_ptr<exec::Backend> backend = device.make_backend({});
  backend->reserve(device.ops().workspace_bytes +
                   exec::OpRunner::device_bytes(graph, device.ops()));
  exec::OpRunner runner(graph, *backend);
  for (const TensorId id : {x, weight, bias})
    runner.write(id, std::vector<double>(static_cast<size_t>(graph.shape(id).elements()), 0.5));
  runner.begin({.seed = 1, .valid_rows = kRows, .gradient_scale = 1});
  std::vector<double> each;
  for (int i = 0; i <= kRepeats; ++i) {
    const double start = now_ms();
    for (size_t op = 0; op < graph.ops.size(); ++op) runner.run(op);
    backend->synchronize();
    if (i > 0) each.push_back(now_ms() - start);
  }
  std::nth_element(each.begin(), each.begin() + kRepeats / 2, each.end());
  return each[kRepeats / 2];
}

std::string bf16x3_advice(double fp32_ms, double bf16x3_ms, double bf16_ms) {
  constexpr double kWorthIt = 1.1;
  std::string ways, times;
  const auto add = [&](double ms, const char* field, const char* how) {
    if (fp32_ms < kWorthIt * ms) return;
    append_item(ways,
                fmt::format("{} would make linear layers and convolutions about {:.1f} times as "
                            "fast on this processor, {}",
                            field,
                            fp32_ms / ms,
                            how),
                "; ");
    append_item(times, fmt::format("{:.2f} ms", ms), " and ");
  };
  add(bf16x3_ms, "execution.bf16x3", "as accurate and with other bits");
  add(bf16_ms, "execution.precision BF16", "with numbers of 16 bits");
  if (ways.empty()) return "";
  return fmt::format(
      "{} ({} instead of {:.2f} ms for a layer of 256 x 1024 x 1024)", ways, times, fp32_ms);
}

std::string measured_bf16x3_advice(exec::Device& device, const ExecutionConfig& execution) {
  const bool applies = !device.ops().separate_memory && cpu::has_bf16_unit() &&
                       execution.precision == Precision::kFp32 && !execution.bf16x3;
  if (!applies) return "";
  return bf16x3_advice(linear_layer_ms(device, false),
                       linear_layer_ms(device, true),
                       linear_layer_ms(device, false, DType::kBF16));
}

}  // namespace lockstep::launcher
