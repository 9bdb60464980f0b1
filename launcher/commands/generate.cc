// lockstep generate CONFIG --checkpoint DIR --prompt TEXT
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/ranks/devices.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/data/format.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/host_copy.h"
#include "runtime/plan/layout.h"
#include "runtime/run/threads.h"
#include "runtime/train/checkpoints/initialize.h"

namespace lockstep {
namespace {

struct GenerateOptions {
  CommonOptions common;
  std::string checkpoint;
  std::string prompt = "\n";
  std::vector<int32_t> prompt_tokens;
  int64_t tokens = 256;
  double temperature = 0.8;
  int64_t top_k = 0;
  uint64_t seed = 1;
};

// Draws a token from the logits: temperature 0 takes the likeliest, top_k > 0 considers only so
// many.
class TokenSampler {
 public:
  TokenSampler(const GenerateOptions& options, int64_t vocabulary)
      : options_(options), order_(static_cast<size_t>(vocabulary)), weights_(order_.size()) {}

  int32_t sample(const float* logits, uint32_t position) {
    std::iota(order_.begin(), order_.end(), 0);
    const auto likelier = [&](int32_t a, int32_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    if (options_.temperature == 0) return *std::min_element(order_.begin(), order_.end(), likelier);
    const size_t kept = options_.top_k > 0
                            ? std::min(order_.size(), static_cast<size_t>(options_.top_k))
                            : order_.size();
    std::partial_sort(
        order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(), likelier);
    double total = 0;
    for (size_t i = 0; i < kept; ++i) {
      weights_[i] = std::exp((static_cast<double>(logits[order_[i]]) - logits[order_[0]]) /
                             options_.temperature);
      total += weights_[i];
    }
    const RngStream stream{options_.seed, position, 0, kRngGenerate};
    double left = static_cast<double>(philox_word(stream, 0)) * 0x1p-32 * total;
    for (size_t i = 0; i < kept; ++i) {
      left -= weights_[i];
      if (left < 0) return order_[i];
    }
    return order_[kept - 1];
  }

 private:
  const GenerateOptions& options_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

// The vocabulary: what the config says or, where it leaves it to the data, what the checkpoint was
// trained with.
int64_t vocabulary_of(const ModelTraits& model, const CheckpointState& state) {
  if (model.outputs > 0) return model.outputs;
  for (const NamedSlice& slice : state.layout) {
    if (slice.name == model.vocabulary_tensor) return slice.shape[0];
  }
  throw CheckpointError("the checkpoint of step {} has no tensor {}: it is not a language model",
                        state.step,
                        model.vocabulary_tensor);
}

// A network with its weights, ready to give the logits of the token that follows.
class LanguageModel {
 public:
  LanguageModel(Device& device,
                const ModelConfig& config,
                int64_t vocabulary,
                int64_t context,
                const std::filesystem::path& folder,
                const CheckpointState& state)
      : context_(context), vocabulary_(vocabulary), backend_(device.make_backend({})) {
    const Graph training = build_model(config, {}, 1, Purpose::kTraining);
    layout_ = make_layout(training, 1);
    graph_ = build_model(config, {}, 1, Purpose::kInference, context);
    const OpSet& ops = backend_->ops();
    plan_ = plan_program(graph_, [&](const Graph& graph, const Op& op) {
      return ops.op_workspace_bytes(graph, op);
    });
    const size_t parameter_bytes = static_cast<size_t>(layout_.elements) * sizeof(float);
    const size_t window_bytes = static_cast<size_t>(context) * sizeof(int32_t);
    backend_->reserve(ops.workspace_bytes + parameter_bytes + plan_.arena_bytes + window_bytes +
                      3 * kDeviceAlignment);
    std::byte* parameters = backend_->allocate(parameter_bytes, kParametersRow);
    HostCopy weights(*backend_, reinterpret_cast<float*>(parameters), layout_.elements);
    read_model(folder, state, named_slices(layout_), weights.data());
    weights.write();
    executor_.emplace(graph_,
                      plan_,
                      layout_,
                      *backend_,
                      ExecutorMemory{backend_->allocate(plan_.arena_bytes, kArenaRow), parameters});
    window_ = backend_->host_array<int32_t>(static_cast<size_t>(context));
    device_window_ = backend_->allocate(window_bytes, "the window");
    lane_ = backend_->host_array<LaneContext>(1);
    logits_ = backend_->host_array<float>(window_.size() * static_cast<size_t>(vocabulary_));
  }

  // Logits (V) after the last of `tokens`, of which the last `context` count.
  const float* logits_after(const std::vector<int32_t>& tokens) {
    const size_t length = std::min(tokens.size(), window_.size());
    std::fill(window_.begin(), window_.end(), 0);
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end(), window_.begin());
    const auto* window = reinterpret_cast<const std::byte*>(window_.data());
    backend_->copy(window, device_window_, window_.size_bytes());
    executor_->run(lane_.front(),
                   device_window_,
                   nullptr,
                   nullptr,
                   nullptr,
                   reinterpret_cast<std::byte*>(logits_.data()));
    backend_->synchronize();
    return &logits_[(length - 1) * static_cast<size_t>(vocabulary_)];
  }

 private:
  int64_t context_;
  int64_t vocabulary_;
  std::unique_ptr<Backend> backend_;
  ParameterLayout layout_;
  Graph graph_;
  ProgramPlan plan_;
  std::optional<Executor> executor_;
  std::span<int32_t> window_;           // what the model sees, as the host has it
  std::byte* device_window_ = nullptr;  // and the device
  std::span<LaneContext> lane_;
  std::span<float> logits_;  // (context, V)
};

std::vector<int32_t> prompt_of(const GenerateOptions& options, int64_t vocabulary, bool text) {
  std::vector<int32_t> prompt = options.prompt_tokens;
  if (prompt.empty()) {
    if (!text)
      throw ConfigError("--prompt: the model was trained on token ids; give --prompt-tokens 1,2,3");
    for (char byte : options.prompt) prompt.push_back(static_cast<unsigned char>(byte));
  }
  if (prompt.empty()) throw ConfigError("--prompt: is empty; give at least one character");
  for (int32_t token : prompt) {
    if (token < 0 || token >= vocabulary)
      throw ConfigError("--prompt-tokens: value is {}; allowed: 0 to {}", token, vocabulary - 1);
  }
  return prompt;
}

void generate_tokens(const GenerateOptions& options, Device& device) {
  const RunConfig config = read_config(options.common);
  set_compute_threads(choose_threads(config, 1));
  const ModelTraits traits = traits_of(config.model);
  const auto generates = [](const ModelTraits& model) {
    return model.vocabulary_tensor != nullptr;
  };
  if (!generates(traits))
    throw ConfigError("model: is {}, which generates no text; allowed: {}",
                      traits.section,
                      sections_where(generates));
  const std::filesystem::path folder = resolve_checkpoint(options.checkpoint);
  const CheckpointState state = read_state(folder);
  const int64_t vocabulary = vocabulary_of(traits, state);
  const ModelConfig resolved = resolve_model(config.model, {.classes = vocabulary});
  const bool text = format_of(config.data)->has_byte_tokens();
  std::vector<int32_t> tokens = prompt_of(options, vocabulary, text);
  const int64_t needed = static_cast<int64_t>(tokens.size()) + options.tokens;
  LanguageModel model(
      device, resolved, vocabulary, std::min(traits.context, needed), folder, state);
  // A text is bytes, whatever room the vocabulary has beyond them.
  constexpr int64_t kBytes = 256;
  TokenSampler sampler(options, text ? std::min(vocabulary, kBytes) : vocabulary);

  const auto emit = [&](int32_t token) {
    if (text) {
      std::fputc(token, stdout);
    } else {
      fmt::print("{} ", token);
    }
    std::fflush(stdout);
  };
  std::for_each(tokens.begin(), tokens.end(), emit);
  std::vector<int32_t> generated;
  for (int64_t i = 0; i < options.tokens; ++i) {
    generated.push_back(sampler.sample(model.logits_after(tokens), static_cast<uint32_t>(i)));
    tokens.push_back(generated.back());
    emit(tokens.back());
  }
  std::fputc('\n', stdout);
  if (!options.common.json.empty()) {
    Json json;
    json["step"] = state.step;
    json["tokens"] = generated;
    write_file_atomically(options.common.json, json.dump() + "\n");
  }
}

ExitCode generate(Session& session, const GenerateOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  const std::unique_ptr<Device> device = choose_device(session, options.common);
  run_on_root(session.communicator(), [&] { generate_tokens(options, *device); });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec generate_command() {
  auto options = std::make_shared<GenerateOptions>();
  CommandSpec command{.name = "generate", .help = "Sample text from a language model"};
  add_common_options(command, options->common);
  command.add("--checkpoint",
              &options->checkpoint,
              "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest)",
              {.required = true});
  command.add("--prompt", &options->prompt, "Text to continue", {.show_default = true});
  command.add("--prompt-tokens",
              &options->prompt_tokens,
              "Token ids to continue, for models trained on token files",
              {.with_commas = true});
  command.add("--tokens",
              &options->tokens,
              "Tokens to generate",
              {.show_default = true, .allowed = WholeNumbers{1, int64_t{1} << 30}});
  command.add("--temperature",
              &options->temperature,
              "Higher is more varied; 0 takes the likeliest token",
              {.show_default = true, .allowed = Between{0, 100}});
  command.add("--top-k",
              &options->top_k,
              "Choose among the k likeliest tokens; 0: among all",
              {.allowed = AtLeast{0}});
  command.add("--seed", &options->seed, "Another seed, another text", {.show_default = true});
  command.run = [options](Session& session) { return generate(session, *options); };
  return command;
}

}  // namespace lockstep
