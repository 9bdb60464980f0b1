#pragma once
// Prompts of `lockstep generate` that are conversations, rendered by a chat template.

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/command_line/command_line.h"
#include "launcher/text/prompts.h"
#include "runtime/chat/chat_files.h"

namespace lockstep::launcher {

struct ChatOptions {
  bool chat = false;                  // prompts are messages of the user
  std::string system;                 // the first message, if not empty
  std::string template_file;          // empty: the tokenizer's template
  std::vector<std::string> messages;  // one conversation: user and assistant in turn

  bool used() const { return chat || !messages.empty(); }
};

void add_chat_options(CommandSpec& command, ChatOptions& options);

// Throws ConfigError for options that exclude each other.
void validate_chat_options(const ChatOptions& options, bool has_prompts, bool has_prompt_tokens);

// The chat template of the options, or the one beside a tokenizer. Throws ConfigError if there is
// none, and DataError.
chat::ChatFiles chat_files_of(const ChatOptions& options, const std::filesystem::path& tokenizer);

// Renders each prompt, or the messages, into a text for the assistant to continue. Throws
// ConfigError if a text is not UTF-8 or the template writes nothing, and DataError.
std::vector<Prompt> chat_prompts(const ChatOptions& options,
                                 const chat::ChatFiles& files,
                                 const std::vector<Prompt>& prompts);

}  // namespace lockstep::launcher
