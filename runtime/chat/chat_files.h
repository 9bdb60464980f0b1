#pragma once
// Chat templates and special tokens in a Hugging Face folder.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/chat_template.h"

namespace lockstep::chat {

struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  // bos_token, eos_token, ... of tokenizer_config.json or special_tokens_map.json.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  // The text of a special token; empty if there is none.
  std::string special_token(const std::string& name) const;
};

// Reads the files beside a tokenizer; `tokenizer` is its file or the folder. The template is read
// from `template_file` or, if that is empty, from chat_template.jinja, otherwise from
// tokenizer_config.json: its chat_template or, if that is a list, the one named default. Throws
// DataError.
ChatFiles read_chat_files(const std::filesystem::path& tokenizer,
                          const std::filesystem::path& template_file);

}  // namespace lockstep::chat
