#pragma once
// Runs what the network of an ONNX file is lowered to, on the device of make_backend_of_tests().
// Its inputs are parameters or constants, so that gradients of all of them can be asked for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/lowering.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/host_copy.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/forward_fusion.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/backend_of_tests.h"

namespace lockstep::testing {

class LoweredNetwork {
 public:
  // Of output number `output`. In training its loss is the mean square of what it differs from
  // `target` by, else it is the result. Inputs of the network are masks of tokens, of such
  // `documents`. Throws ConfigError as the lowering does.
  LoweredNetwork(const onnx::Network& network,
                 size_t output,
                 graph::Purpose purpose,
                 const std::vector<float>& target = {},
                 const std::vector<int32_t>& documents = {})
      : network_(network),
        backend_(make_backend_of_tests()),
        graph_(build(output, purpose, documents)) {
    const plan::ParameterLayout layout = plan::make_layout(graph_, 1);
    slots_ = layout.slots;
    const plan::ProgramPlan plan =
        plan::plan_program(graph_, [&](const graph::Graph& g, const graph::Op& op) {
          return backend_->ops().op_workspace_bytes(g, op);
        });
    const size_t parameter_bytes = static_cast<size_t>(layout.elements + 16) * sizeof(float),
                 target_bytes = (target.size() + 1) * sizeof(float);
    backend_->reserve(backend_->ops().workspace_bytes + plan.arena_bytes + plan.state_bytes +
                      plan.constant_bytes + 2 * parameter_bytes + target_bytes + sizeof(float) +
                      7 * plan::kDeviceAlignment);
    float* const parameters = floats(parameter_bytes);
    float* const gradients = floats(parameter_bytes);
    float* const unused = floats(sizeof(float));
    float* const given = floats(target_bytes);
    exec::Executor executor(
        graph_,
        plan,
        layout,
        *backend_,
        {.arena = backend_->allocate(plan.arena_bytes, "arena"),
         .parameters = reinterpret_cast<std::byte*>(parameters),
         .states = plan.state_bytes > 0 ? backend_->allocate(plan.state_bytes, "states") : nullptr,
         .constants = backend_->allocate(plan.constant_bytes, "constants")});
    exec::HostCopy initial(*backend_, parameters, layout.elements);
    train::initialize_parameters(layout, 1, initial.data());
    initial.write();
    exec::HostCopy targets(*backend_, given, static_cast<int64_t>(target.size()));
    std::ranges::copy(target, targets.data());
    targets.write();
    const std::span<graph::LaneContext> lane = backend_->host_array<graph::LaneContext>(1);
    lane.front().valid_rows = 1;
    lane.front().gradient_scale = 1;
    const std::span<float> result = backend_->host_array<float>(
        std::max<size_t>(16, static_cast<size_t>(graph_.shape(graph_.result).elements())));
    executor.run(lane.front(),
                 reinterpret_cast<const std::byte*>(unused),
                 reinterpret_cast<const std::byte*>(given),
                 gradients,
                 nullptr,
                 reinterpret_cast<std::byte*>(result.data()));
    exec::HostCopy computed(*backend_, gradients, layout.elements);
    gradients_.assign(computed.read(), computed.data() + layout.elements);
    result_.assign(result.begin(), result.end());
  }

  // Of inference: the output's elements, in the file's order.
  std::vector<float> output() const {
    return {result_.begin(), result_.begin() + graph_.shape(graph_.result).elements()};
  }

  // Of training: those of a value of the network that is a parameter.
  std::vector<double> gradient(int value) const {
    for (const onnx::LoweredParameter& parameter : parameters_) {
      if (parameter.value != value) continue;
      const std::string& name = graph_[parameter.tensor].name;
      const auto slot = std::ranges::find(slots_, name, &plan::ParameterSlot::name);
      return onnx::elements_in_file(network_.values[static_cast<size_t>(value)],
                                    parameter.storage,
                                    gradients_.data() + slot->offset);
    }
    return {};
  }

  size_t ops(graph::OpKind kind) const {
    return static_cast<size_t>(std::ranges::count(
        std::span(graph_.ops).first(graph_.forward_ops), kind, &graph::Op::kind));
  }

 private:
  float* floats(size_t bytes) {
    return reinterpret_cast<float*>(backend_->allocate(bytes, "test"));
  }

  onnx::LoweringOptions options_of(graph::GraphBuilder& builder,
                                   const std::vector<int32_t>& documents) const {
    onnx::LoweringOptions options;
    if (network_.inputs.empty() || documents.empty()) return options;
    const onnx::Value& first = network_.values[static_cast<size_t>(network_.inputs[0])];
    options.documents = builder.constant("documents", shape_of(first), documents);
    options.token_masks = network_.inputs;
    for (const int input : network_.inputs) options.limits[input] = 2;
    return options;
  }

  // Sets the masks of tokens: 1 where the document is at least 0.
  static void set_masks(graph::GraphBuilder& builder, onnx::Lowering& lowering) {
    graph::PointwiseProgram seen;
    const int zero = seen.constant(0);
    seen.append(graph::PointwiseFunction::kLessOrEqual, zero, seen.input(0));
    for (const int input : lowering.options().token_masks)
      lowering.layouts().set(
          input,
          ops::pointwise(builder, "mask", {lowering.options().documents}, seen, /*integers=*/true));
  }

  graph::Graph build(size_t output, graph::Purpose purpose, const std::vector<int32_t>& documents) {
    graph::GraphBuilder builder((graph::GraphOptions(purpose)));
    builder.input("unused", {1, 1}, DType::kF32);
    onnx::Lowering lowering(network_, builder, options_of(builder, documents));
    set_masks(builder, lowering);
    lowering.run();
    graph::PointwiseProgram same;
    same.input(0);
    const TensorId y = ops::pointwise(
        builder, "numbers", {lowering.layouts().plain(network_.outputs[output])}, same);
    parameters_ = lowering.parameters().all();
    if (purpose == graph::Purpose::kInference) {
      builder.keep(y);
      graph::Graph graph = std::move(builder).finish();
      graph::fuse_forward(graph);
      for (const TensorId parameter : graph.parameters) graph[parameter].frozen = true;
      return graph;
    }
    const Shape row = {1, builder.shape(y).elements()};
    const TensorId target = builder.input("target", row, DType::kF32);
    ops::mean_squared_error(builder, ops::reshape(builder, "row", y, row), target);
    graph::Graph graph = std::move(builder).finish();
    graph::fuse_forward(graph);
    graph::differentiate(graph);
    return graph;
  }

  const onnx::Network& network_;
  std::unique_ptr<exec::Backend> backend_;
  std::vector<onnx::LoweredParameter> parameters_;
  graph::Graph graph_;
  std::vector<plan::ParameterSlot> slots_;
  std::vector<float> gradients_, result_;
};

}  // namespace lockstep::testing
