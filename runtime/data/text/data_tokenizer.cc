#include "runtime/data/text/data_tokenizer.h"

#include <filesystem>
#include <type_traits>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.txt"})
    if (fs::exists(folder / name, error)) return true;
  return false;
}

fs::path path_of(const DataConfig& data, const std::string& path) {
  const fs::path below = fs::path(data.dir) / path;
  std::error_code error;
  return fs::exists(below, error) ? below : fs::path(path);
}

}  // namespace

decltype(DataConfig::source) source_with_tokenizer(decltype(DataConfig::source) source,
                                                   const std::string& weights,
                                                   bool hidden_tokens) {
  if (weights.empty() || !has_tokenizer(weights)) return source;
  std::visit(
      [&](auto& kind) {
        using Source = std::decay_t<decltype(kind)>;
        if constexpr (requires { kind.tokenizer; }) {
          if (std::is_same_v<Source, TokensConfig> && !hidden_tokens) return;
          if (kind.tokenizer.empty()) kind.tokenizer = weights;
        }
      },
      source);
  return source;
}

int64_t placeholder_vocabulary(const DataConfig& data,
                               const std::string& path,
                               const MissingFile& missing) {
  const ModelTraits& model = missing.model();
  const bool outputs_are_tokens =
      model.text_task == TextTask::kMaskedTokens || model.text_task == TextTask::kNextToken;
  const int64_t known = outputs_are_tokens ? model.outputs : model.vocabulary;
  if (known > 0) return known;
  const fs::path file = path_of(data, path);
  std::error_code error;
  if (path.empty() || !fs::exists(file, error))
    missing.refuse("the number of tokens",
                   fmt::format("set {}, or ", model.field(model.vocabulary_field)));
  return open_tokenizer(file)->id_limit();
}

std::unique_ptr<const Tokenizer> open_data_tokenizer(const DataConfig& data,
                                                     const std::string& path,
                                                     const std::string& field) {
  if (path.empty())
    refuse_value(
        field,
        in_quotes(path),
        "a tokenizer.json, a tokenizer.model, a vocab.txt of BERT, or a folder with one of them, "
        "because neither model.from nor train.init_from names such a folder");
  try {
    return open_tokenizer(path_of(data, path));
  } catch (const DataError& error) {
    throw DataError("{}: {}", field, error.what());
  }
}

}  // namespace lockstep
