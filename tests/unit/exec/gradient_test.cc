// Catches: a wrong wiring of any op in a whole model: the gradient that the executor computes must
// be the slope of the loss that it reports, tensor by tensor. (The kernels themselves are checked
// in tests/kernels.)
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "collectives/reduce/step_totals.h"
#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/layout.h"
#include "runtime/train/state/initialize.h"
#include "tests/reference/models.h"
#include "tests/reference/opened_models.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::exec {
namespace {

struct Case {
  std::string name;
  ModelConfig model;
  bool recompute = false;
  int64_t loss_rows = 0;
};

constexpr int64_t kBatch = 6;

class Machine {
 public:
  Machine(const ModelConfig& model, const models::ModelIo& io, const graph::GraphOptions& options)
      : backend_(cpu::make_backend()),
        graph_(models::build_model(model, io, kBatch, options)),
        layout_(plan::make_layout(graph_, 1)),
        plan_(plan::plan_program(graph_,
                                 [&](const graph::Graph& g, const graph::Op& op) {
                                   return backend_->ops().op_workspace_bytes(g, op);
                                 })),
        parameters_(floats(layout_.elements)),
        gradients_(floats(layout_.elements)),
        executor_(graph_,
                  plan_,
                  layout_,
                  *backend_,
                  {backend_->allocate(plan_.arena_bytes, "arena"),
                   reinterpret_cast<std::byte*>(parameters_)}) {
    train::initialize_parameters(layout_, 7, parameters_);
    // Larger weights than GPT-2 begins with, so that every path carries a gradient worth measuring.
    for (const plan::ParameterSlot& slot : layout_.slots) {
      for (int64_t i = 0; i < slot.elements; ++i) {
        const uint32_t word = philox_word({3, 0, 0, 1}, static_cast<uint64_t>(slot.offset + i));
        parameters_[slot.offset + i] += 0.4f * (uniform_from_word(word) - 0.5f);
      }
    }
    fill_inputs(io);
  }

  // The loss sum, with gradients of it in gradients().
  double run() {
    graph::LaneContext& lane = lane_.front();
    lane.seed = 5;
    lane.valid_rows = kBatch * graph_.loss_rows_per_sample;
    lane.gradient_scale = 1;
    executor_.run(lane,
                  reinterpret_cast<const std::byte*>(input_.data()),
                  reinterpret_cast<const std::byte*>(target_.data()),
                  gradients_,
                  nullptr,
                  reinterpret_cast<std::byte*>(statistics_.data()));
    return statistics_.front().values[graph::kLossSum];
  }

  const plan::ParameterLayout& layout() const { return layout_; }
  float* parameters() { return parameters_; }
  const float* gradients() const { return gradients_; }

 private:
  float* floats(int64_t count) {
    return reinterpret_cast<float*>(
        backend_->allocate(static_cast<size_t>(count) * sizeof(float), "test"));
  }
  void fill_inputs(const models::ModelIo& io) {
    const auto fill = [&](TensorId id, std::vector<uint32_t>& out, uint32_t purpose) {
      const graph::Tensor& tensor = graph_[id];
      out.resize((tensor.bytes() + sizeof(uint32_t) - 1) / sizeof(uint32_t));
      const int64_t classes = io.classes > 0 ? io.classes : 2;
      for (size_t i = 0; i < out.size(); ++i) {
        const uint32_t word = philox_word({11, 0, 0, purpose}, i);
        const float real = uniform_from_word(word);
        out[i] = tensor.dtype == DType::kI32
                     ? bounded_from_word(word, static_cast<uint32_t>(classes))
                 : tensor.dtype == DType::kU8 ? word
                                              : std::bit_cast<uint32_t>(real);
      }
    };
    fill(graph_.inputs[graph::GraphIn::kInput], input_, 1);
    fill(graph_.inputs[graph::GraphIn::kTarget], target_, 2);
  }

  std::unique_ptr<Backend> backend_;
  graph::Graph graph_;
  plan::ParameterLayout layout_;
  plan::ProgramPlan plan_;
  float* parameters_;
  float* gradients_;
  Executor executor_;
  std::span<graph::LaneContext> lane_ = backend_->host_array<graph::LaneContext>(1);
  std::span<collectives::LaneStatistics> statistics_ =
      backend_->host_array<collectives::LaneStatistics>(1);
  std::vector<uint32_t> input_, target_;  // bits of i32, f32 or four u8
};

class WholeModelGradient : public ::testing::TestWithParam<Case> {};

// For each parameter tensor: (L(p + e g) - L(p - e g)) / 2e must be g . g. The tensor is moved by
// 0.02 in L2 norm, where weights are about 0.2 each: the third derivative then contributes some
// 1e-3 of the slope, and so does fp32 rounding of the loss. Networks of images are moved by less,
// and may be off by more: thousands of ReLUs and maxima have their kinks nearby.
TEST_P(WholeModelGradient, IsTheSlopeOfTheLoss) {
  if (std::holds_alternative<ResnetConfig>(GetParam().model)) LOCKSTEP_SKIP_WITH_SANITIZERS();
  const bool tokens = testing::traits_of(GetParam().model).input == config::ModelInput::kTokens;
  const auto* mlp = std::get_if<MlpConfig>(&GetParam().model);
  models::ModelIo io = testing::small_mlp_io();
  if (tokens) io = {.features = 0, .classes = 29, .target_columns = 0};
  const bool images = !tokens && mlp == nullptr;
  if (images) io = testing::small_image_io();
  if (mlp != nullptr && mlp->loss != Loss::kSoftmaxCrossEntropy) io = {18, 0, mlp->outputs};
  graph::GraphOptions options(graph::Purpose::kTraining);
  options.recompute = GetParam().recompute;
  options.loss_rows = GetParam().loss_rows;
  Machine machine(GetParam().model, io, options);
  const double loss = machine.run();
  ASSERT_TRUE(std::isfinite(loss));
  const std::vector<float> gradient(machine.gradients(),
                                    machine.gradients() + machine.layout().elements);
  for (const plan::ParameterSlot& slot : machine.layout().slots) {
    if (slot.running_momentum > 0) continue;  // its gradient is a statistic
    double slope = 0;
    for (int64_t i = slot.offset; i < slot.offset + slot.elements; ++i)
      slope +=
          static_cast<double>(gradient[static_cast<size_t>(i)]) * gradient[static_cast<size_t>(i)];
    ASSERT_GT(slope, 0) << slot.name;
    const double step = (images ? 0.001 : 0.02) / std::sqrt(slope);
    const std::vector<float> saved(machine.parameters() + slot.offset,
                                   machine.parameters() + slot.offset + slot.elements);
    const auto loss_at = [&](double sign) {
      for (int64_t i = 0; i < slot.elements; ++i)
        machine.parameters()[slot.offset + i] =
            saved[static_cast<size_t>(i)] +
            static_cast<float>(sign * step * gradient[static_cast<size_t>(slot.offset + i)]);
      return machine.run();
    };
    const double measured = (loss_at(1) - loss_at(-1)) / (2 * step);
    std::copy(saved.begin(), saved.end(), machine.parameters() + slot.offset);
    EXPECT_TRUE(std::abs(measured - slope) <= (images ? 0.03 : 0.01) * slope)
        << slot.name << ": " << measured << " against " << slope;
  }
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto& [name, activation] : {std::pair("relu", Activation::kRelu),
                                         std::pair("gelu_tanh", Activation::kGeluTanh),
                                         std::pair("gelu_erf", Activation::kGeluErf),
                                         std::pair("silu", Activation::kSilu),
                                         std::pair("tanh", Activation::kTanh)}) {
    MlpConfig config = testing::small_mlp();
    config.activation = activation;
    list.push_back({std::string("mlp_") + name, config});
  }
  MlpConfig smoothed = testing::small_mlp();
  smoothed.label_smoothing = 0.2f;
  list.push_back({"mlp_label_smoothing", smoothed});
  for (const auto& [name, loss] : {std::pair("binary", Loss::kBinaryCrossEntropy),
                                   std::pair("squared_error", Loss::kMeanSquaredError),
                                   std::pair("absolute_error", Loss::kMeanAbsoluteError),
                                   std::pair("huber", Loss::kHuber),
                                   std::pair("distribution", Loss::kSoftCrossEntropy)}) {
    MlpConfig config = testing::small_mlp();
    config.loss = loss;
    config.huber_delta = 0.5f;
    config.outputs = 3;
    list.push_back({std::string("mlp_") + name, config});
  }
  list.push_back({"gpt_tied", testing::small_gpt()});
  GptConfig untied = testing::small_gpt();
  untied.tied_head = false;
  untied.bias = false;
  untied.dropout = 0.2f;
  untied.attention_dropout = 0.3f;
  list.push_back({"gpt_untied_no_bias_dropout", untied});
  list.push_back({"gpt_recomputed", untied, true});
  list.push_back({"llama_tied", testing::small_llama()});
  LlamaConfig llama = testing::small_llama();
  llama.tied_head = false;
  llama.qkv_bias = llama.output_bias = llama.mlp_bias = true;
  llama.kv_heads = 1;
  llama.activation = Activation::kGeluTanh;
  llama.rope_scaling = LlamaConfig::RopeScaling::kLinear;
  llama.rope_factor = 2;
  list.push_back({"llama_biases", llama});
  list.push_back({"llama_recomputed", llama, true});
  LlamaConfig normed = testing::small_llama();
  normed.qk_norm = true;
  normed.sliding_window = 5;
  list.push_back({"llama_qk_norm_window", normed});
  list.push_back({"llama_rows_of_logits", normed, true, 7});
  list.push_back({"gptj", testing::small_gptj()});
  list.push_back({"gptj_recomputed_rows_of_logits", testing::small_gptj(), true, 7});
  using Task = BertConfig::Task;
  for (const auto& [name, task] : {std::pair("masked_tokens", Task::kMaskedTokens),
                                   std::pair("sequence_classes", Task::kSequenceClasses),
                                   std::pair("sequence_values", Task::kSequenceValues),
                                   std::pair("token_classes", Task::kTokenClasses)}) {
    BertConfig bert = testing::small_bert(task);
    list.push_back({std::string("bert_") + name, bert});
    bert.layout = BertConfig::Layout::kRoberta;
    bert.dropout = 0.2f;
    bert.attention_dropout = 0.3f;
    list.push_back({std::string("roberta_recomputed_") + name, bert, true, 7});
    if (task != Task::kSequenceClasses && task != Task::kSequenceValues) continue;
    bert.pooling = BertConfig::Pooling::kMean;
    list.push_back({std::string("roberta_of_mean_") + name, bert, false, 7});
  }
  list.push_back({"resnet_projection", testing::small_resnet()});
  ResnetConfig padded = testing::small_resnet();
  padded.shortcut = ResnetConfig::Shortcut::kPadded;
  list.push_back({"resnet_padded", padded});
  LenetConfig lenet;
  lenet.classes = 7;
  list.push_back({"lenet_relu_max", lenet});
  lenet.activation = Activation::kTanh;
  lenet.pooling = LenetConfig::Pooling::kAverage;
  list.push_back({"lenet_tanh_average", lenet});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Models,
                         WholeModelGradient,
                         ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::exec
