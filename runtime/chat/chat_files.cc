#include "runtime/chat/chat_files.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace lockstep::chat {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{64} << 20;  // max size of a file

std::string text_of(const fs::path& path) {
  try {
    return read_file(path, kMaxBytes);
  } catch (const IoError& error) {
    throw DataError("{}", error.what());
  }
}

// The JSON in a file; an empty object if there is no such file.
Json json_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Json::object();
  try {
    return Json::parse(text_of(path));
  } catch (const JsonError& problem) {
    throw DataError("{}: {}", path.string(), problem.what());
  }
}

void add_special_tokens(const Json& config, ChatFiles* files) {
  for (const std::string& name :
       words_of("bos_token eos_token unk_token sep_token pad_token cls_token mask_token")) {
    const Json* token = config.find(name);
    if (token != nullptr && token->find("content") != nullptr) token = token->find("content");
    if (token == nullptr || !token->is_string() || !files->special_token(name).empty()) continue;
    files->special_tokens.emplace_back(name, token->get<std::string>());
  }
}

std::optional<ChatTemplate> template_in(const Json& config, const std::string& path) {
  const Json* found = config.find("chat_template");
  if (found == nullptr || found->is_null()) return std::nullopt;
  const std::string name = path + " (chat_template)";
  if (found->is_string()) return ChatTemplate(found->get<std::string>(), name);
  if (found->kind() == Json::Kind::kArray) {
    for (const Json& each : *found) {
      const Json *key = each.find("name"), *text = each.find("template");
      if (key != nullptr && *key == Json("default") && text != nullptr && text->is_string())
        return ChatTemplate(text->get<std::string>(), name);
    }
  }
  throw DataError("{}: is neither a string nor a list with a template named default", name);
}

}  // namespace

std::string ChatFiles::special_token(const std::string& name) const {
  const auto found =
      std::ranges::find(special_tokens, name, [](const auto& token) { return token.first; });
  return found == special_tokens.end() ? std::string() : found->second;
}

ChatFiles read_chat_files(const fs::path& tokenizer, const fs::path& template_file) {
  std::error_code error;
  const fs::path folder = fs::is_directory(tokenizer, error) ? tokenizer : tokenizer.parent_path();
  const fs::path config_path = folder / "tokenizer_config.json";
  const Json config = json_of(config_path);
  ChatFiles files;
  add_special_tokens(config, &files);
  add_special_tokens(json_of(folder / "special_tokens_map.json"), &files);
  const fs::path beside = folder / "chat_template.jinja";
  if (!template_file.empty()) {
    files.chat_template.emplace(text_of(template_file), template_file.string());
  } else if (fs::exists(beside, error)) {
    files.chat_template.emplace(text_of(beside), beside.string());
  } else {
    files.chat_template = template_in(config, config_path.string());
  }
  return files;
}

}  // namespace lockstep::chat
