#include "launcher/bench/op_parity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "launcher/bench/parity_images.h"
#include "models/registry.h"
#include "models/small_models.h"
#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/op_runner.h"
#include "runtime/graph/fusion.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::launcher {
namespace {

// The limit relative to the L2 norm of an output. Products and sums keep 24 bits. Values stored in
// 16 bits lose up to half a unit in the last place, and so do the probabilities that cuDNN's
// attention rounds. TF32 has FP16's mantissa.
double limit_for(const ParityMode& mode, graph::OpKind kind) {
  // Attention's gradients of the scores, small differences of large sums, are rounded to 16 bits
  // too.
  const double times = kind == graph::OpKind::kAttentionBackward ? 2 : 1;
  switch (mode.tf32 ? DType::kF16 : mode.compute) {
    case DType::kBF16: return 1e-2 * times;
    case DType::kF16: return 2e-3 * times;
    default: return 2e-5;
  }
}

// Two graphs of one model: the CPU's in FP32, and the device's. The device's has casts of its
// inputs that the CPU's lacks, and its norms may have masks; otherwise both have the same ops and
// tensors in the same order.
class Pair {
 public:
  Pair(const ParityCase& test, exec::Device& device, const ParityMode& mode)
      : mode_(mode),
        padded_(test.padded),
        cpu_graph_(graph_of(test, DType::kF32, 1)),
        device_graph_(graph_for(test, device, mode.compute)),
        cpu_backend_(cpu::make_backend()),
        device_backend_(device.make_backend({.tf32 = mode.tf32, .compute = mode.compute})) {
    device_backend_->reserve(device.ops().workspace_bytes +
                             exec::OpRunner::device_bytes(device_graph_, device.ops()));
    cpu_.emplace(cpu_graph_, *cpu_backend_);
    device_.emplace(device_graph_, *device_backend_);
    // In FP16 gradients need a scale, as in a run: small ones would keep fewer bits.
    const float gradient_scale = mode.compute == DType::kF16 ? 16.0f : 0.25f;
    for (exec::OpRunner* runner : {&*cpu_, &*device_})
      runner->begin({.seed = 3,
                     .step = 5,
                     .lane = 1,
                     .valid_rows = test.lane_batch * cpu_graph_.loss_rows_per_sample - 1,
                     .gradient_scale = gradient_scale,
                     .mix = test.mix});
  }

  std::vector<OpDeviation> compare(int64_t classes, const std::vector<std::string>& skipped) {
    for (const std::string& name : skipped) {
      const bool is_kind = name.find(' ') == std::string::npos;
      if (!is_kind && std::ranges::none_of(cpu_graph_.ops, [&](const graph::Op& op) {
            return full_name(op) == name;
          }))
        throw ConfigError("--skip-op: no op is called '{}'", name);
    }
    fill(classes);
    std::vector<OpDeviation> found;
    size_t mine = 0;
    for (size_t i = 0; i < device_graph_.ops.size(); ++i) {
      const graph::Op& op = device_graph_.ops[i];
      try {
        if (op.kind == graph::OpKind::kCast) {
          device_->run(i);
          device_backend_->synchronize();
        } else if (is_skipped(op, skipped)) {
          skip_op(mine++, i);
        } else {
          compare_op(mine++, i, found);
        }
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", full_name(op), error.what()));
      }
    }
    LOCKSTEP_CHECK(mine == cpu_graph_.ops.size());
    return found;
  }

 private:
  static graph::Graph graph_of(const ParityCase& test, DType compute, int head_multiple) {
    graph::GraphOptions options(test.purpose);
    options.compute = compute;
    options.head_multiple = head_multiple;
    options.lanes = test.lanes;
    return test.build(options);
  }

  // As a run on the device has it.
  static graph::Graph graph_for(const ParityCase& test, exec::Device& device, DType compute) {
    const exec::OpSet& ops = device.ops();
    graph::Graph graph = graph_of(test, compute, ops.head_multiple);
    graph::save_relu_masks(
        graph, [&](const graph::Graph& g, const graph::Op& op) { return ops.supports(g, op); });
    return graph;
  }

  // Fills inputs and parameters with random values, rounded so that both have the same.
  void fill(int64_t classes) {
    for (size_t k = 0; k < cpu_graph_.inputs.size(); ++k) {
      const TensorId id = cpu_graph_.inputs.at(k);
      std::vector<double> values = random(id, classes, 1);
      if (padded_ && cpu_graph_.shape(id).rank() == 3) pad(cpu_graph_.shape(id), values);
      give(id, device_graph_.inputs.at(k), values);
    }
    for (size_t k = 0; k < cpu_graph_.parameters.size(); ++k) {
      const TensorId id = cpu_graph_.parameters[k];
      // Scaled so that activations stay near one.
      const Shape& shape = cpu_graph_.shape(id);
      const int64_t width = shape.rank() > 1 ? shape.elements() / shape[0] : shape[0];
      std::vector<double> values = random(id, classes, 1.7 / std::sqrt(static_cast<double>(width)));
      if (is_variance(cpu_graph_[id])) {
        for (double& value : values) value = 0.5 + std::abs(value);
      }
      give(id, device_graph_.parameters[k], values);
    }
  }

  // Gives the samples (B, R, T) of packed_tokens.h a document each: all tokens, half of them, one,
  // none, and so on.
  static void pad(const Shape& shape, std::vector<double>& values) {
    const int64_t tokens = shape[2];
    const int64_t lengths[] = {tokens, tokens / 2, 1, 0};
    for (int64_t sample = 0; sample < shape[0]; ++sample) {
      double* const documents = values.data() + (sample * shape[1] + 1) * tokens;
      const int64_t length = lengths[sample % std::ssize(lengths)];
      std::fill_n(documents, length, 0.0);
      std::fill(documents + length, documents + tokens, -1.0);
    }
  }

  static bool is_variance(const graph::Tensor& parameter) {
    return parameter.running_momentum > 0 && parameter.initializer.value > 0;
  }

  std::vector<double> random(TensorId id, int64_t classes, double size) const {
    const graph::Tensor& tensor = cpu_graph_[id];
    const RngStream stream{7, 0, 0, static_cast<uint32_t>(id)};
    std::vector<double> values(static_cast<size_t>(tensor.shape.elements()));
    const auto bound = static_cast<uint32_t>(classes > 0 ? classes : 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t word = philox_word(stream, i);
      switch (tensor.dtype) {
        case DType::kI32: values[i] = bounded_from_word(word, bound); break;
        case DType::kU8: values[i] = word % 256; break;
        default: values[i] = size * (2 * uniform_from_word(word) - 1);
      }
    }
    return values;
  }

  // Writes to the device and copies its rounded values to the CPU's graph.
  void give(TensorId cpu, TensorId device, const std::vector<double>& values) {
    device_->write(device, values);
    cpu_->write(cpu, device_->read(device));
  }

  static std::string full_name(const graph::Op& op) {
    return fmt::format("{} {}", graph::name_of(op.kind), op.name);
  }

  bool is_skipped(const graph::Op& op, const std::vector<std::string>& skipped) const {
    const auto named = [&](const std::string& name) {
      return name == full_name(op) || name == graph::name_of(op.kind);
    };
    return std::ranges::any_of(skipped, named) ||
           std::ranges::any_of(op.inputs, [&](TensorId id) { return absent_.count(id) > 0; });
  }

  // Replaces the device's outputs by the CPU's.
  void skip_op(size_t mine, size_t its) {
    const graph::Op &cpu_op = cpu_graph_.ops[mine], &device_op = device_graph_.ops[its];
    cpu_->run(mine);
    for (size_t k = 0; k < cpu_op.outputs.size(); ++k) {
      const TensorId cpu = cpu_op.outputs.at(k), device = device_op.outputs.at(k);
      if (cpu == kNoTensor) continue;
      if (is_private(cpu_op, graph::OutputName::at(k)))
        absent_.insert(device);
      else
        device_->write(device, cpu_->read(cpu));
    }
  }

  // What attention's forward pass saves for its backward pass has no common format.
  static bool is_private(const graph::Op& op, graph::OutputName output) {
    return op.kind == graph::OpKind::kAttention && output == graph::AttentionOut::kLogSumExp;
  }

  void compare_op(size_t mine, size_t its, std::vector<OpDeviation>& found) {
    const graph::Op &cpu_op = cpu_graph_.ops[mine], &device_op = device_graph_.ops[its];
    LOCKSTEP_CHECK(cpu_op.kind == device_op.kind && cpu_op.name == device_op.name);
    cpu_->run(mine);
    device_->run(its);
    for (size_t k = 0; k < cpu_op.outputs.size(); ++k) {
      const TensorId cpu = cpu_op.outputs.at(k), device = device_op.outputs.at(k);
      if (cpu == kNoTensor) continue;
      if (is_private(cpu_op, graph::OutputName::at(k))) continue;
      const std::vector<double> expected = cpu_->read(cpu), got = device_->read(device);
      found.push_back(
          {full_name(cpu_op),
           cpu_graph_[cpu].name,
           deviation(expected, got, sums_rows(cpu) ? squares_of(cpu_op.inputs.first()) : 0),
           limit_for(mode_, cpu_op.kind)});
      // Both continue from the same numbers.
      if (cpu_op.outputs.at(k) != cpu_graph_.result) cpu_->write(cpu, got);
    }
  }

  // Whether an output sums over the rows of d_y, the op's first input, as gradients of biases and
  // of a norm's parameters do. Such a sum may be almost zero; its error is then the rounding of its
  // terms, whose norm is about that of d_y.
  bool sums_rows(TensorId output) const {
    const graph::Tensor& tensor = cpu_graph_[output];
    return tensor.role == graph::Role::kParameterGradient && tensor.shape.rank() == 1;
  }

  double squares_of(TensorId id) {
    double squares = 0;
    for (const double value : cpu_->read(id)) squares += value * value;
    return squares;
  }

  // Relative to the L2 norm of the expected values or of the terms that they sum, whichever is
  // larger.
  static double deviation(const std::vector<double>& expected,
                          const std::vector<double>& got,
                          double squares_of_terms) {
    double difference = 0, squares = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += (expected[i] - got[i]) * (expected[i] - got[i]);
      squares += expected[i] * expected[i];
    }
    const double of = std::max(squares, squares_of_terms);
    return of > 0 ? std::sqrt(difference / of) : std::sqrt(difference);
  }

  const ParityMode& mode_;
  const bool padded_;
  graph::Graph cpu_graph_, device_graph_;
  std::unique_ptr<exec::Backend> cpu_backend_, device_backend_;
  std::optional<exec::OpRunner> cpu_, device_;
  std::set<TensorId> absent_;  // outputs of skipped ops that the CPU cannot replace
};

}  // namespace

namespace {

// Two parts of every attention layer have LoRA, and nothing else is trained.
void add_lora(graph::GraphOptions& options) {
  options.lora.rank = 8;
  options.lora.parts = [](const std::string& weight,
                          int64_t rows) -> std::vector<graph::OutputRows> {
    if (weight.find("attn") == std::string::npos || rows < 32) return {};
    const int64_t part = rows / 32 * 8;
    return {{0, part}, {2 * part, part}};
  };
  options.prepare_parameters = [](graph::Graph& graph) {
    for (const TensorId id : graph.parameters) graph[id].frozen = !graph::is_lora(graph[id].name);
  };
}

}  // namespace

std::vector<ParityCase> parity_cases() {
  std::vector<ParityCase> cases;
  for (const models::SmallModel& small : models::small_models()) {
    const auto add = [&](const std::string& name, bool with_lora) {
      cases.push_back({name,
                       [small, with_lora](graph::GraphOptions options) {
                         if (with_lora) add_lora(options);
                         return small.build(options);
                       },
                       small.lane_batch,
                       small.io.classes,
                       small.purpose,
                       small.mix,
                       small.lanes,
                       small.padded});
    };
    if (small.name == "gpt odd") add("LoRA of " + small.name, true);
    add(small.name, false);
  }
  for (const auto& [name, lanes] : {std::pair("images", 1), std::pair("images of five lanes", 5)}) {
    cases.push_back({name,
                     [](const graph::GraphOptions& options) { return images_graph(4, options); },
                     4,
                     kImagesClasses,
                     graph::Purpose::kTraining,
                     0.75f,
                     lanes});
  }
  return cases;
}

std::vector<ParityMode> parity_modes() {
  return {{"FP32", DType::kF32},
          {"BF16", DType::kBF16},
          {"FP16", DType::kF16},
          {"TF32", DType::kF32, true}};
}

std::vector<OpDeviation> compare_ops(const ParityCase& test,
                                     exec::Device& device,
                                     const ParityMode& mode,
                                     const std::vector<std::string>& skipped) {
  return Pair(test, device, mode).compare(test.classes, skipped);
}

}  // namespace lockstep::launcher
