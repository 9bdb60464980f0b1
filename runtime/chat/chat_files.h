#pragma once
// Chat templates and special tokens as a folder of Hugging Face has them.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/chat_template.h"

namespace lockstep {

struct ChatFiles {
  std::optional<ChatTemplate> chat_template;
  // bos_token, eos_token, ... of tokenizer_config.json or special_tokens_map.json.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  // The text of a special token; empty: there is none.
  std::string special_token(const std::string& name) const;
};

// What lies beside a tokenizer: `tokenizer` is its file or the folder. The template is that of
// `template_file` or, where that is empty, of chat_template.jinja, or else of tokenizer_config.json:
// its chat_template or, of several, the one named default. Throws DataError.
ChatFiles read_chat_files(const std::filesystem::path& tokenizer,
                          const std::filesystem::path& template_file);

}  // namespace lockstep
