#pragma once
// Prompts of `lockstep generate` that are conversations, as a chat template makes texts of them.

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/command_line.h"
#include "launcher/commands/prompts.h"
#include "runtime/chat/chat_files.h"

namespace lockstep {

struct ChatOptions {
  bool chat = false;                  // prompts are messages of the user
  std::string system;                 // the first message, where there is one
  std::string template_file;          // empty: that of the tokenizer
  std::vector<std::string> messages;  // one conversation: of user and assistant, in turns

  bool used() const { return chat || !messages.empty(); }
};

void add_chat_options(CommandSpec& command, ChatOptions& options);

// Throws ConfigError where options do not go together.
void check_chat_options(const ChatOptions& options, bool has_prompts, bool has_prompt_tokens);

// The chat template beside a tokenizer, or that of the options. Throws ConfigError where there is none,
// and DataError.
ChatFiles chat_files_of(const ChatOptions& options, const std::filesystem::path& tokenizer);

// The texts that the assistant is to go on with: of each prompt, or of the messages. Throws
// ConfigError where a text is not UTF-8 or the template writes nothing, and DataError.
std::vector<Prompt> chat_prompts(const ChatOptions& options,
                                 const ChatFiles& files,
                                 const std::vector<Prompt>& prompts);

}  // namespace lockstep
