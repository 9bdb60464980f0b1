#include "runtime/data/text/data_tokenizer.h"

#include <filesystem>
#include <type_traits>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/config/limits.h"

namespace lockstep::data {
namespace fs = std::filesystem;

fs::path path_in_data(const DataConfig& data, const std::string& path) {
  const fs::path below = fs::path(data.dir) / path;
  std::error_code error;
  // If a file that looks the same is below data.dir, the error about `below` reports it.
  const bool meant = fs::exists(below, error) || !same_looking_path(below.string()).empty();
  return path.empty() || !meant ? fs::path(path) : below;
}

decltype(DataConfig::source) source_with_tokenizer(decltype(DataConfig::source) source,
                                                   const std::string& weights,
                                                   bool hidden_tokens) {
  if (weights.empty() || tokenizer_file_in(weights).empty()) return source;
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
  const config::ModelTraits& model = missing.model();
  const bool outputs_are_tokens = model.text_task == config::TextTask::kMaskedTokens ||
                                  model.text_task == config::TextTask::kNextToken ||
                                  model.text_task == config::TextTask::kAnswers;
  const int64_t known = outputs_are_tokens ? model.outputs : model.vocabulary;
  if (known > 0) return known;
  const fs::path file = path_in_data(data, path);
  std::error_code error;
  if (path.empty() || !fs::exists(file, error))
    missing.refuse("the number of tokens",
                   fmt::format("set {}, or ", model.field(model.vocabulary_field)));
  return tokenizer::open_tokenizer(file)->id_limit();
}

std::unique_ptr<const tokenizer::Tokenizer> open_data_tokenizer(const DataConfig& data,
                                                                const std::string& path,
                                                                const std::string& field) {
  if (path.empty())
    config::refuse_value(
        field,
        in_quotes(path),
        "the path of a tokenizer ({}), or a folder with one of them, because neither "
        "model.from nor train.init_from names such a folder",
        kTokenizerFiles);
  try {
    return tokenizer::open_tokenizer(path_in_data(data, path));
  } catch (const DataError& error) {
    throw DataError("{}: {}", field, error.what());
  }
}

}  // namespace lockstep::data
