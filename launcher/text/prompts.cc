#include "launcher/text/prompts.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/lines.h"

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

}  // namespace lockstep::launcher
