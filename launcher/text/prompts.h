#pragma once
// The texts that `lockstep generate` continues, and conversations that a chat template renders.

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/command_line/command_line.h"
#include "runtime/chat/chat_files.h"

namespace lockstep::launcher {

struct Prompt {
  std::string from;  // for messages: "--prompt", or "--prompts: FILE:LINE"
  std::string text;
};

// The prompts of --prompt, followed by the lines of the --prompts file if there is one. Throws
// ConfigError if the file cannot be read, and DataError if it is not text, or if it or one of its
// lines is empty, as answers are in the order of the lines.
std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file);

// Reads the file that an option names. Throws ConfigError, which names the option.
std::string read_option_file(const char* option, const std::string& path);

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
