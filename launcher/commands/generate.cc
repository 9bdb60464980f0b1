// lockstep generate CONFIG [--checkpoint DIR] --prompt TEXT
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/run/checkpoint_config.h"
#include "launcher/text/generated_text.h"
#include "launcher/text/prompts.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/lora_layers.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/data/format.h"
#include "runtime/generate/generation.h"
#include "runtime/run/threads.h"
#include "runtime/train/state/initial_weights.h"

namespace lockstep::launcher {
namespace {

struct GenerateOptions {
  CommonOptions common;
  std::string checkpoint;
  std::string tokenizer;
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::vector<int32_t> prompt_tokens;
  int64_t tokens = 256;
  generate::SamplingOptions sampling = {.temperature = 0.8};
  std::vector<int32_t> end_tokens;
  std::vector<std::string> stop_texts;
  ChatOptions chat;
};

// The size of the vocabulary: the config's or, if the config leaves it to the data, the
// checkpoint's.
int64_t vocabulary_of(const config::ModelTraits& model,
                      const std::vector<checkpoint::NamedSlice>& layout) {
  if (model.outputs > 0) return model.outputs;
  for (const checkpoint::NamedSlice& slice : layout) {
    if (slice.name == model.vocabulary_tensor) return slice.shape[0];
  }
  throw CheckpointError("--checkpoint: has no tensor {}: it is not a language model",
                        model.vocabulary_tensor);
}

// The weights of a checkpoint, or those that train.init_from names.
struct Weights {
  int64_t step = 0;
  DType compute = DType::kF32;
  std::vector<checkpoint::NamedSlice> layout;  // of a checkpoint
  generate::ReadWeights read;
};

Weights weights_of(const GenerateOptions& options,
                   const run::OpenedConfig& opened,
                   const exec::OpSet& ops) {
  const RunConfig& config = opened.config;
  if (const auto found = choose_checkpoint(options.checkpoint, options.common.config)) {
    const std::filesystem::path& folder = *found;
    const checkpoint::CheckpointState state = checkpoint::read_state(folder);
    return {state.step,
            choose_generation_type(opened, ops, &state, folder.string()),
            state.layout,
            [=, folder = *found](const std::vector<checkpoint::NamedSlice>& slices, float* flat) {
              huggingface::read_merged(folder, state, config, slices, flat);
            }};
  }
  if (config.adapter.lora)
    throw ConfigError(
        "adapter.lora: needs --checkpoint, because a run has to train the LoRA first");
  if (config.train.init_from.empty())
    throw ConfigError(
        "--checkpoint is required, because the config has neither model.from nor train.init_from");
  return {0,
          choose_generation_type(opened, ops, nullptr, ""),
          {},
          [config](const std::vector<checkpoint::NamedSlice>& slices, float* flat) {
            const checkpoint::WeightsRead read = train::read_initial_weights(config, slices, flat);
            for (const std::string& note : read.notes) log_warn("{}", note);
            if (read.new_head)
              throw CheckpointError("{}: has no head that predicts the next token",
                                    config.train.init_from);
          }};
}

// The path of the tokenizer: that of --tokenizer, of the folder of the weights, or of the data;
// empty: there is none.
std::filesystem::path tokenizer_path(const GenerateOptions& options, const RunConfig& config) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  const std::filesystem::path beside = config.train.init_from;
  if (!beside.empty() && !tokenizer_file_in(beside).empty()) return beside;
  const auto* conversations = std::get_if<ConversationsConfig>(&config.data.source);
  if (conversations == nullptr) return {};
  const std::filesystem::path below =
      std::filesystem::path(config.data.dir) / conversations->tokenizer;
  return lockstep::is_there(below) ? below : std::filesystem::path(conversations->tokenizer);
}

TokenTexts texts_of(const GenerateOptions& options, const RunConfig& config) {
  const std::filesystem::path path = tokenizer_path(options, config);
  if (!path.empty()) return {tokenizer::open_tokenizer(path)};
  return {nullptr, data::format_of(config.data)->has_byte_tokens()};
}

// `what` names the ids in the error.
void check_ids(const std::string& what, std::span<const int32_t> ids, int64_t vocabulary) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary)
      throw ConfigError("{} is {}; allowed: 0 to {}", what, id, vocabulary - 1);
  }
}

void check_ends(const GenerateOptions& options, const TokenTexts& texts, int64_t vocabulary) {
  check_ids("--end-token: value", options.end_tokens, vocabulary);
  if (!options.stop_texts.empty() && !texts.has_texts())
    throw ConfigError(
        "--stop: the model was trained on token ids; give --tokenizer, or --end-token 1,2,3");
  if (std::ranges::find(options.stop_texts, "") != options.stop_texts.end())
    throw ConfigError("--stop: value is ''; allowed: a text of at least one character");
}

std::vector<generate::Generation> begin_sequences(const GenerateOptions& options,
                                                  const TokenTexts& texts,
                                                  const chat::ChatFiles* chat,
                                                  int64_t vocabulary) {
  std::vector<Prompt> given = read_prompts(options.prompts, options.prompt_file);
  if (chat != nullptr) given = chat_prompts(options.chat, *chat, given);
  if (given.empty() && options.prompt_tokens.empty()) given.push_back({"--prompt", "\n"});
  if (!given.empty() && !texts.has_texts())
    throw ConfigError(
        "--prompt: the model was trained on token ids; give --tokenizer, or --prompt-tokens 1,2,3");
  std::vector<generate::Generation> sequences;
  const auto begin = [&](std::vector<int32_t> tokens) {
    generate::Generation& sequence = sequences.emplace_back();
    sequence.prompt_tokens = tokens.size();
    sequence.tokens = std::move(tokens);
  };
  check_ids("--prompt-tokens: value", options.prompt_tokens, vocabulary);
  if (!options.prompt_tokens.empty()) begin(options.prompt_tokens);
  for (const Prompt& prompt : given) {
    // A chat template writes special tokens itself.
    std::vector<int32_t> tokens = texts.tokens_of(prompt.text, chat == nullptr);
    if (tokens.empty())
      throw ConfigError("{}: has no tokens; allowed: a text of at least one", prompt.from);
    check_ids(prompt.from + ": a token of the text", tokens, vocabulary);
    begin(std::move(tokens));
  }
  return sequences;
}

const char* name_of(generate::Generation::End end) {
  switch (end) {
    case generate::Generation::End::kLength: return "length";
    case generate::Generation::End::kToken: return "end token";
    case generate::Generation::End::kText: return "stop text";
  }
  return "";
}

Json result_of(const Weights& weights,
               const TokenTexts& texts,
               const std::vector<generate::Generation>& sequences) {
  Json json;
  json["step"] = weights.step;
  Json all = Json::array();
  for (const generate::Generation& sequence : sequences) {
    const auto tokens = sequence.generated();
    Json one;
    one["prompt_tokens"] = std::vector<int32_t>(
        sequence.tokens.begin(),
        sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.prompt_tokens));
    one["tokens"] = std::vector<int32_t>(tokens.begin(), tokens.end());
    if (texts.has_texts()) one["text"] = sequence.text;
    one["end"] = name_of(sequence.end);
    all.push_back(one);
  }
  if (sequences.size() == 1) json["tokens"] = all.begin()->at("tokens");
  json["sequences"] = all;
  return json;
}

// `texts` is borrowed.
generate::GenerationLimits limits_of(const GenerateOptions& options,
                                     const RunConfig& config,
                                     const TokenTexts& texts,
                                     const chat::ChatFiles* chat) {
  generate::GenerationLimits limits{
      .tokens = options.tokens, .end_tokens = options.end_tokens, .stop_texts = options.stop_texts};
  if (limits.end_tokens.empty() && huggingface::is_model_folder(config.train.init_from))
    limits.end_tokens = huggingface::end_tokens(config.train.init_from);
  if (limits.end_tokens.empty() && chat != nullptr) {
    const auto end = texts.tokenizer->id_of(chat->special_token("eos_token"));
    if (end) limits.end_tokens.push_back(static_cast<int32_t>(*end));
  }
  if (texts.has_texts())
    limits.text_of = [&](std::span<const int32_t> tokens) { return texts.text_of(tokens); };
  return limits;
}

void generate_tokens(const GenerateOptions& options, exec::Device& device) {
  require_result_path("--json", options.common.json);
  validate_chat_options(options.chat,
                        !options.prompts.empty() || !options.prompt_file.empty(),
                        !options.prompt_tokens.empty());
  const run::OpenedConfig opened = read_config(options.common);
  const RunConfig& config = opened.config;
  set_compute_threads(run::choose_threads(config, share_of(find_cpu_limits(), 1)));
  const config::ModelTraits& traits = opened.model->traits();
  const auto generates = [](const config::ModelTraits& model) {
    return model.vocabulary_tensor != nullptr;
  };
  if (!generates(traits))
    throw ConfigError("model: is {}, which generates no text; allowed: {}",
                      traits.section,
                      models::sections_where(generates));
  const Weights weights = weights_of(options, opened, device.ops());
  const int64_t vocabulary = vocabulary_of(traits, weights.layout);
  const TokenTexts texts = texts_of(options, config);
  check_ends(options, texts, vocabulary);
  std::optional<chat::ChatFiles> chat;
  if (options.chat.used()) {
    if (texts.tokenizer == nullptr) throw ConfigError("--chat: given; allowed: with --tokenizer");
    chat = chat_files_of(options.chat, tokenizer_path(options, config));
  }
  const chat::ChatFiles* const chat_files = chat ? &*chat : nullptr;
  std::vector<generate::Generation> sequences =
      begin_sequences(options, texts, chat_files, vocabulary);
  size_t longest = 0;
  for (const generate::Generation& sequence : sequences)
    longest = std::max(longest, sequence.prompt_tokens);
  generate::LanguageModel model(
      device.make_backend({}),
      *models::reopen_model(opened.model, opened.model->resolved({.classes = vocabulary})),
      weights.compute,
      vocabulary,
      static_cast<int64_t>(sequences.size()),
      std::min(traits.context, static_cast<int64_t>(longest) + options.tokens),
      weights.read);

  const generate::GenerationLimits limits = limits_of(options, config, texts, chat_files);
  // If tokens are bytes, only their ids are sampled, even if the vocabulary is larger.
  constexpr int64_t kBytes = 256;
  generate::TokenSampler sampler(options.sampling,
                                 texts.bytes ? std::min(vocabulary, kBytes) : vocabulary);

  // A single text is printed as it grows; several are printed when all are complete.
  GenerationPrinter printer(texts, options.stop_texts, chat_files == nullptr);
  const bool grows = sequences.size() == 1;
  if (grows) printer.begin(sequences[0]);
  generate::generate(model, sampler, limits, sequences, [&] {
    if (grows) printer.go_on(sequences[0]);
  });
  for (const generate::Generation& sequence : sequences) {
    if (!grows) {
      printer.begin(sequence);
      printer.go_on(sequence);
    }
    std::fputc('\n', stdout);
  }
  if (!options.common.json.empty())
    write_json(options.common.json, result_of(weights, texts, sequences), /*indent=*/-1);
}

void add_prompt_options(CommandSpec& command, GenerateOptions& options) {
  command.add("--checkpoint",
              &options.checkpoint,
              "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (the newest); "
              "by default the weights of model.from or train.init_from or, if CONFIG is a run "
              "folder, those of its best checkpoint, or of its newest if it has none",
              {.also = "ckpt weights model model_path load from checkpoint_path run"});
  command.add(
      "--tokenizer",
      &options.tokenizer,
      "A tokenizer.json, a vocab.json with merges.txt, a .tiktoken, or a folder with one; by "
      "default that of the folder that the weights come from");
  command.add("--prompt",
              &options.prompts,
              "Text to continue; can be repeated",
              {.one_each_time = true, .may_be_empty = true, .also = "text start p"});
  command.add("--prompts",
              &options.prompt_file,
              "A file with a prompt on each line; no line is empty",
              {.also = "prompt_file prompts_file file input"});
  command.add("--prompt-tokens",
              &options.prompt_tokens,
              "Token ids to continue, for models trained on token files",
              {.with_commas = true});
}

void add_sampling_options(CommandSpec& command, generate::SamplingOptions& sampling) {
  command.add("--temperature",
              &sampling.temperature,
              "Higher is more varied; 0 takes the likeliest token",
              {.show_default = true, .allowed = Between{0, 100}, .also = "temp t"});
  command.add("--top-k",
              &sampling.top_k,
              "Choose among the k likeliest tokens; 0: among all",
              {.allowed = AtLeast{0}, .also = "topk k"});
  command.add("--top-p",
              &sampling.top_p,
              "Choose among the likeliest tokens whose probabilities sum to this",
              {.show_default = true, .allowed = Between{0, 1}, .also = "topp nucleus"});
  command.add("--repetition-penalty",
              &sampling.repetition_penalty,
              "Above 1: tokens that the text already has become less likely",
              {.show_default = true, .allowed = Between{0.01, 100}});
  command.add("--seed", &sampling.seed, "Another seed gives another text", {.show_default = true});
}

}  // namespace

CommandSpec generate_command() {
  auto options = std::make_shared<GenerateOptions>();
  CommandSpec command{.name = "generate",
                      .help = "Sample text from a language model",
                      .also = "chat gen complete completion"};
  add_common_options(command, options->common);
  add_prompt_options(command, *options);
  command.add("--tokens",
              &options->tokens,
              "Max tokens to generate for each prompt",
              {.show_default = true,
               .allowed = WholeNumbers{1, int64_t{1} << 30},
               .also = "max_new_tokens max_tokens n num_tokens length max_length n_predict"});
  add_chat_options(command, options->chat);
  add_sampling_options(command, options->sampling);
  command.add("--end-token",
              &options->end_tokens,
              "Token ids that end a text; by default those of the folder of the weights",
              {.with_commas = true});
  command.add("--stop",
              &options->stop_texts,
              "Text that ends the generated text and is not part of it; can be repeated",
              {.one_each_time = true});
  command.run = [options](Session& session) {
    return on_first_device(
        session, options->common, [&](exec::Device& device) { generate_tokens(*options, device); });
  };
  return command;
}

}  // namespace lockstep::launcher
