#include "launcher/commands/prompts.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {

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
  if (text.empty()) throw DataError("--prompts: {} is empty; allowed: a prompt on each line", file);
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string prompt = text.substr(at, end - at);
    if (prompt.ends_with('\r')) prompt.pop_back();
    std::string from = fmt::format("--prompts: {}:{}", file, line);
    if (prompt.empty())
      throw DataError("{}: the line is empty; allowed: a prompt on each line", from);
    prompts.push_back({std::move(from), std::move(prompt)});
    at = end + 1;
  }
  return prompts;
}

}  // namespace lockstep
