#include "runtime/tokenizer/tokenizer.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{256} << 20;  // of a tokenizer's file

fs::path file_in(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::exists(path / name)) return path / name;
  throw DataError("{}: has neither tokenizer.json nor tokenizer.model", path.string());
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
  // A .model is a protobuf message, which does not begin like an object of JSON.
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (file.extension() == ".json" || (first != std::string::npos && bytes[first] == '{'))
    return parse_tokenizer_json(bytes, file.string());
  return parse_sentencepiece(bytes, file.string());
}

}  // namespace lockstep
