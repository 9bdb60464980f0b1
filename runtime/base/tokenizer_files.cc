#include "runtime/base/tokenizer_files.h"

#include <system_error>

#include "runtime/base/file.h"

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

}  // namespace lockstep
