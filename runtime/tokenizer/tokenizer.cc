#include "runtime/tokenizer/tokenizer.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/tokenizer/bpe_files.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/tiktoken.h"

namespace lockstep::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{256} << 20;  // max size of a tokenizer's file

fs::path file_in(const fs::path& path) {
  if (!is_folder(path)) return path;
  const fs::path file = tokenizer_file_in(path);
  if (!file.empty()) return file;
  for (const auto& [name, missing] :
       {std::pair("vocab.json", "merges.txt"), {"merges.txt", "vocab.json"}})
    if (is_there(path / name))
      throw DataError("{}: has {} but no {}, which belongs to it", path.string(), name, missing);
  throw DataError("{}: has no tokenizer; it needs one of {}", path.string(), kTokenizerFiles);
}

std::string read_bytes(const fs::path& file) {
  try {
    return read_file(file, kMaxBytes);
  } catch (const IoError& error) {
    throw DataError("{}", error.what());
  }
}

// The options in a tokenizer_config.json beside a vocab.txt; defaults if there is none.
BertVocabularyOptions options_beside(const fs::path& vocabulary) {
  BertVocabularyOptions options;
  const fs::path file = vocabulary.parent_path() / "tokenizer_config.json";
  if (!is_there(file)) return options;
  Json json;
  try {
    json = Json::parse(read_bytes(file));
  } catch (const JsonError& error) {
    throw DataError("{}: {}", file.string(), error.what());
  }
  const JsonNode node(json, file.string());
  const auto flag = [&](const char* name) -> std::optional<bool> {
    const JsonNode member = node.find(name);
    return member.is_null() ? std::nullopt : std::optional(member.flag());
  };
  options.lower_case = flag("do_lower_case");
  options.strip_accents = flag("strip_accents");
  options.split_chinese = node.flag_or("tokenize_chinese_chars", true);
  return options;
}

}  // namespace

std::unique_ptr<const Tokenizer> open_tokenizer(const fs::path& path) {
  const fs::path file = file_in(path);
  if (const fs::path merges = merges_beside(file); !merges.empty())
    return open_bpe_files(file, merges);
  if (file.filename() == "merges.txt" && is_there(file.parent_path() / "vocab.json"))
    return open_bpe_files(file.parent_path() / "vocab.json", file);
  const std::string bytes = read_bytes(file);
  if (file_kind(bytes)) throw DataError("{}: {}", file.string(), is_not(bytes, "a tokenizer"));
  if (is_tiktoken(bytes) || has_suffix(file.string(), ".tiktoken"))
    return parse_tiktoken(bytes, file.string());
  if (has_suffix(file.string(), ".txt"))
    return parse_bert_vocabulary(bytes, file.string(), options_beside(file));
  // A .model is a protobuf message, which does not begin like a JSON object.
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (has_suffix(file.string(), ".json") || (first != std::string::npos && bytes[first] == '{'))
    return parse_tokenizer_json(bytes, file.string());
  return parse_sentencepiece(bytes, file.string());
}

}  // namespace lockstep::tokenizer
