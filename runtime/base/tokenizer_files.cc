#include "runtime/base/tokenizer_files.h"

#include <algorithm>
#include <system_error>

#include "runtime/base/file.h"
#include "runtime/base/names.h"

namespace lockstep {

std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    const std::filesystem::path file = folder / name;
    if (!is_there(file)) continue;
    if (file.filename() != "vocab.json" || is_there(folder / "merges.txt")) return file;
  }
  std::error_code error;
  std::filesystem::path only;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".tiktoken") continue;
    if (!only.empty()) return {};
    only = entry.path();
  }
  return only;
}

std::vector<TokenizerFile> tokenizer_files_at(const std::filesystem::path& path) {
  if (path.empty() || !is_there(path)) return {};
  if (!is_folder(path) && std::ranges::count(kAllTokenizerFiles, path.filename().string()) == 0) {
    for (const auto& [ending, name] :
         {std::pair(".txt", "vocab.txt"), {".model", "tokenizer.model"}})
      if (has_suffix(path.string(), ending)) return {{name, path}};
    if (path.extension() == ".tiktoken") return {{path.filename().string(), path}};
    return {{"tokenizer.json", path}};
  }
  const std::filesystem::path folder = is_folder(path) ? path : path.parent_path();
  std::vector<TokenizerFile> files;
  for (const std::string name : kAllTokenizerFiles)
    if (is_file(folder / name)) files.push_back({name, folder / name});
  if (is_file(folder / "chat_template.jinja"))
    files.push_back({"chat_template.jinja", folder / "chat_template.jinja"});
  if (const std::filesystem::path file = tokenizer_file_in(folder); file.extension() == ".tiktoken")
    files.push_back({file.filename().string(), file});
  return files;
}

}  // namespace lockstep
