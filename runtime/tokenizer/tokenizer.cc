#include "runtime/tokenizer/tokenizer.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30;  // of a tokenizer's file

fs::path file_in(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / "tokenizer.json")) return path / "tokenizer.json";
  throw DataError("{}: has no tokenizer.json", path.string());
}

}  // namespace

std::unique_ptr<const Tokenizer> open_tokenizer(const fs::path& path) {
  const fs::path file = file_in(path);
  std::string bytes;
  try {
    bytes = read_file(file, kMostBytes);
  } catch (const IoError& error) {
    throw DataError("{}", error.what());
  }
  return parse_tokenizer_json(bytes, file.string());
}

}  // namespace lockstep
