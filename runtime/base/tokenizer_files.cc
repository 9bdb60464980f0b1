#include "runtime/base/tokenizer_files.h"

#include "runtime/base/file.h"

namespace lockstep {

std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    const std::filesystem::path file = folder / name;
    if (!is_there(file)) continue;
    if (file.filename() != "vocab.json" || is_there(folder / "merges.txt")) return file;
  }
  return {};
}

}  // namespace lockstep
