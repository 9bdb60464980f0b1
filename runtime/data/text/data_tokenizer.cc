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

void use_tokenizer_of_weights(bool hidden_tokens, RunConfig* config) {
  const std::string& folder = config->train.init_from;
  if (folder.empty() || !has_tokenizer(folder)) return;
  std::visit(
      [&](auto& source) {
        using Source = std::decay_t<decltype(source)>;
        if constexpr (requires { source.tokenizer; }) {
          if (std::is_same_v<Source, TokensConfig> && !hidden_tokens) return;
          if (source.tokenizer.empty()) source.tokenizer = folder;
        }
      },
      config->data.source);
}

int64_t assumed_vocabulary(const DataConfig& data,
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
    missing.refuse("how many tokens there are",
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
        "a tokenizer.json, a tokenizer.model, a vocab.txt of BERT, or a folder with one, as "
        "neither model.from nor train.init_from names such a folder");
  try {
    return open_tokenizer(path_of(data, path));
  } catch (const DataError& error) {
    throw DataError("{}: {}", field, error.what());
  }
}

}  // namespace lockstep
