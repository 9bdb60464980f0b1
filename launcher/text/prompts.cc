#include "launcher/text/prompts.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::launcher {

std::string read_option_file(const char* option, const std::string& path) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  try {
    return read_file(path, kMaxBytes);
  } catch (const IoError& error) {
    throw ConfigError("{}: {}", option, error.what());
  }
}

std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file) {
  std::vector<Prompt> prompts;
  for (const std::string& text : texts) prompts.push_back({"--prompt", text});
  if (file.empty()) return prompts;
  const std::string text = read_option_file("--prompts", file);
  if (const FileKind kind = file_kind(text); kind)
    throw DataError("--prompts: {} {}", file, is_not(text, "text with a prompt on each line"));
  if (without_byte_order_mark(text).empty())
    throw DataError("--prompts: {} is empty; it needs a prompt on each line", file);
  Lines lines(text);
  for (std::string_view prompt; lines.next(&prompt);) {
    std::string from = fmt::format("--prompts: {}:{}", file, lines.number());
    if (prompt.empty()) throw DataError("{}: the line is empty; every line needs a prompt", from);
    prompts.push_back({std::move(from), std::string(prompt)});
  }
  return prompts;
}

namespace {

// A template's input must be UTF-8.
void check_text(const std::string& option, const std::string& text) {
  const size_t valid = tokenizer::valid_utf8_bytes(text);
  if (valid < text.size())
    throw ConfigError("{}: byte {} of the text is not UTF-8; allowed: UTF-8", option, valid);
}

void add_message(const char* role, const std::string& text, Json* messages) {
  messages->push_back(Json::object({{"role", Json(role)}, {"content", Json(text)}}));
}

}  // namespace

void add_chat_options(CommandSpec& command, ChatOptions& options) {
  command.add(
      "--chat",
      &options.chat,
      "Prompts are messages of a user, rendered by the tokenizer's chat template; only answers are "
      "printed");
  command.add(
      "--message",
      &options.messages,
      "A message of one conversation, of the user and the assistant in turn, the last one the "
      "user's; can be repeated",
      {.one_each_time = true, .may_be_empty = true});
  command.add("--system",
              &options.system,
              "With --chat or --message: the system's message",
              {.may_be_empty = true});
  command.add("--chat-template",
              &options.template_file,
              "File with a chat template, instead of the tokenizer's");
}

void validate_chat_options(const ChatOptions& options, bool has_prompts, bool has_prompt_tokens) {
  if (!options.used()) {
    if (!options.system.empty() || !options.template_file.empty())
      throw ConfigError("{} needs --chat or --message",
                        options.system.empty() ? "--chat-template" : "--system");
    return;
  }
  if (has_prompt_tokens)
    throw ConfigError("--prompt-tokens cannot be used with --chat or --message");
  if (options.messages.empty()) {
    if (!has_prompts) throw ConfigError("--chat needs --prompt, --prompts or --message");
    return;
  }
  if (has_prompts)
    throw ConfigError("--message: given together with --prompt or --prompts; allowed: one of them");
  if (options.messages.size() % 2 == 0)
    throw ConfigError(
        "--message: given {} times; allowed: an odd number, as the last one is the user's",
        options.messages.size());
}

chat::ChatFiles chat_files_of(const ChatOptions& options, const std::filesystem::path& tokenizer) {
  if (!options.template_file.empty()) read_option_file("--chat-template", options.template_file);
  chat::ChatFiles files = chat::read_chat_files(tokenizer, options.template_file);
  if (!files.chat_template)
    throw ConfigError("--chat: there is no chat template beside {}; give one with --chat-template",
                      tokenizer.string());
  return files;
}

std::vector<Prompt> chat_prompts(const ChatOptions& options,
                                 const chat::ChatFiles& files,
                                 const std::vector<Prompt>& prompts) {
  const chat::ChatSettings settings{.special_tokens = files.special_tokens,
                                    .add_generation_prompt = true};
  check_text("--system", options.system);
  for (const std::string& message : options.messages) check_text("--message", message);
  for (const Prompt& prompt : prompts) check_text(prompt.from, prompt.text);
  const auto render = [&](const std::string& from, const std::vector<std::string>& turns) {
    Json messages = Json::array();
    if (!options.system.empty()) add_message("system", options.system, &messages);
    for (size_t i = 0; i < turns.size(); ++i)
      add_message(i % 2 == 0 ? "user" : "assistant", turns[i], &messages);
    std::string text = files.chat_template->render(messages, settings).text;
    if (text.empty()) throw ConfigError("{}: the chat template renders it as an empty text", from);
    return Prompt{from, std::move(text)};
  };
  if (!options.messages.empty()) return {render("--message", options.messages)};
  std::vector<Prompt> texts;
  for (const Prompt& prompt : prompts) texts.push_back(render(prompt.from, {prompt.text}));
  return texts;
}

}  // namespace lockstep::launcher
