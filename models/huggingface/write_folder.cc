#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <set>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/labels.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/half.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/base/transpose.h"
#include "runtime/checkpoint/format/file_layout.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// Files of generation and preprocessing, which are copied from --like, as those of tokenizers are.
constexpr std::array kOtherFiles = {"chat_template.jinja",
                                    "chat_template.json",
                                    "generation_config.json",
                                    "preprocessor_config.json"};

// The folder's tensors; those that are transposed or reordered point into `copies`.
struct FolderTensors {
  std::vector<checkpoint::F32Tensor> tensors;
  std::list<std::vector<float>> copies;
};

FolderTensors tensors_of(const Family& family,
                         const ModelConfig& model,
                         const std::vector<checkpoint::NamedSlice>& slices,
                         const float* flat) {
  FolderTensors all;
  for (const checkpoint::NamedSlice& slice : slices) {
    for (checkpoint::F32Tensor& tensor : folder_tensors(family, model, slice, flat, all.copies))
      all.tensors.push_back(std::move(tensor));
  }
  return all;
}

// Whether the folder has weights, so that dtype_like() can use their dtype.
bool has_weights(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "model.safetensors", error) ||
         fs::exists(folder / "model.safetensors.index.json", error);
}

// Throws ConfigError if a finite value would overflow in the dtype that the user chose.
template <typename T>
void check_range(const std::vector<checkpoint::F32Tensor>& tensors, const char* dtype) {
  for (const checkpoint::F32Tensor& tensor : tensors)
    for (const float x : tensor.values)
      if (std::isfinite(x) && !std::isfinite(to_float(round_to<T>(x))))
        throw ConfigError(
            "--dtype: value is {}; allowed: f32, because '{}' has a value of {}, which overflows",
            dtype,
            tensor.name,
            x);
}

template <typename T>
bool holds(const std::vector<checkpoint::F32Tensor>& tensors) {
  const auto exact = [](float x) { return to_float(round_to<T>(x)) == x; };
  return std::ranges::all_of(tensors, [&](const checkpoint::F32Tensor& tensor) {
    return std::ranges::all_of(tensor.values, exact);
  });
}

// The dtype of the folder's weights if they all have the same one and it holds `tensors` exactly;
// otherwise F32.
checkpoint::FileDtype dtype_like(const fs::path& folder,
                                 const Family& family,
                                 const std::vector<checkpoint::F32Tensor>& tensors) {
  if (folder.empty() || !has_weights(folder)) return checkpoint::FileDtype::kF32;
  const TensorFiles files(folder);
  const auto all_are = [&](const std::string& dtype) {
    return std::ranges::all_of(files.tensors(), [&](const auto& tensor) {
      return tensor.second.entry->dtype == dtype || family.is_ignored_tensor(tensor.first);
    });
  };
  if (all_are("BF16") && holds<BFloat16>(tensors)) return checkpoint::FileDtype::kBf16;
  if (all_are("F16") && holds<Float16>(tensors)) return checkpoint::FileDtype::kF16;
  return checkpoint::FileDtype::kF32;
}

// The config.json of --like. It must be of the same family: fields of another one would remain.
Json config_like(const fs::path& folder, const Family& family) {
  OpenConfig config(folder, "--like");
  if (config.family != &family)
    ConfigFields(config.json, config.origin).refuse("model_type", types_text(family));
  return std::move(config.json);
}

bool is_number(const Json& value) {
  const Json::Kind kind = value.kind();
  return kind == Json::Kind::kInteger || kind == Json::Kind::kUnsigned ||
         kind == Json::Kind::kDouble;
}

// The number of positions in config.json; 0 if it has none.
int64_t positions(const Json& config) {
  for (const char* name : {"max_position_embeddings", "n_positions"}) {
    const Json* const value = config.find(name);
    if (value != nullptr && is_number(*value)) return static_cast<int64_t>(value->get<double>());
  }
  return 0;
}

int64_t context_of(const ModelConfig& model) {
  return std::visit(
      [](const auto& config) -> int64_t {
        if constexpr (requires { config.context; }) return config.context;
        return 0;
      },
      model);
}

// If the model has fewer positions than the tokenizer allows, lowers the tokenizer's maximum
// length.
void lower_length(int64_t context, const fs::path& folder, WrittenFolder& written) {
  constexpr const char* kLength = "model_max_length";
  const fs::path path = folder / kTokenizerConfig;
  Json json = read_json(path);
  const Json* const length = json.find(kLength);
  if (length == nullptr || !is_number(*length)) return;
  if (length->get<double>() <= static_cast<double>(context)) return;
  json[kLength] = context;
  write_file_atomically(path, json.dump({.indent = 2}) + "\n");
  std::ranges::replace(
      written.copied,
      std::string(kTokenizerConfig),
      fmt::format("{} (with {} lowered to {})", kTokenizerConfig, kLength, context));
}

// With the max length, without which transformers would not truncate.
void copy_tokenizer(const std::vector<TokenizerFile>& files,
                    int64_t context,
                    const fs::path& folder) {
  for (const TokenizerFile& file : files) {
    fs::remove(folder / file.name);
    fs::copy_file(file.path, folder / file.name);
  }
  if (files.empty() || context == 0 || fs::exists(folder / kTokenizerConfig)) return;
  write_file_atomically(folder / kTokenizerConfig,
                        Json::object({{"model_max_length", context}}).dump({.indent = 2}) + "\n");
}

const char* torch_name(checkpoint::FileDtype dtype) {
  switch (dtype) {
    case checkpoint::FileDtype::kF32: return "float32";
    case checkpoint::FileDtype::kF16: return "float16";
    case checkpoint::FileDtype::kBf16: return "bfloat16";
  }
  return "";
}

}  // namespace

std::vector<checkpoint::F32Tensor> folder_tensors(const Family& family,
                                                  const ModelConfig& model,
                                                  const checkpoint::NamedSlice& slice,
                                                  const float* flat,
                                                  std::list<std::vector<float>>& copies) {
  std::vector<checkpoint::F32Tensor> tensors;
  for (const StoredPart& stored : stored_parts(family, model, slice)) {
    const float* values = flat + slice.offset + stored.first * stored.columns;
    const auto elements = static_cast<size_t>(stored.rows * stored.columns);
    if (stored.part.transposed || stored.reordered) {
      std::vector<float>& copy = copies.emplace_back(elements);
      if (stored.reordered) {
        checkpoint::to_file_order(slice, values, copy.data());
      } else {
        transpose(values, stored.columns, stored.rows, copy.data());
      }
      values = copy.data();
    }
    tensors.push_back({stored.part.name, stored.extents, {values, elements}});
  }
  return tensors;
}

WrittenFolder write_folder(const fs::path& out,
                           const ModelConfig& model,
                           const std::vector<checkpoint::NamedSlice>& slices,
                           const float* flat,
                           const FolderOptions& options) {
  const Family& family = family_to_use(model);
  Json config = options.like.empty() ? Json::object() : config_like(options.like, family);
  const int64_t before = positions(config);
  family.write(model, slices, config);
  name_labels(options.class_names, config);
  const int64_t lowered = positions(config) < before ? context_of(model) : 0;
  const FolderTensors all = tensors_of(family, model, slices, flat);
  WrittenFolder written;
  written.dtype = options.dtype ? *options.dtype : dtype_like(options.like, family, all.tensors);
  if (written.dtype == checkpoint::FileDtype::kF16) check_range<Float16>(all.tensors, "f16");
  if (written.dtype == checkpoint::FileDtype::kBf16) check_range<BFloat16>(all.tensors, "bf16");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(written.dtype);
  std::map<std::string, std::string> metadata = options.metadata;
  metadata["format"] = "pt";  // from_pretrained requires it
  if (!options.like.empty() && options.class_names.empty() && !label_names(config).empty())
    written.copied.emplace_back("id2label of config.json");
  written.weights = make_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / kConfigFile, config.dump({.indent = 2}) + "\n");
    family.write_other_files(model, options, config, folder);
    std::set<std::string> others;
    for (const char* name : kOtherFiles) others.insert(name);
    for (const char* name : kAllTokenizerFiles) others.insert(name);
    for (const std::string& name : others) {
      if (options.like.empty() || !is_file(options.like / name)) continue;
      if (fs::exists(folder / name)) continue;  // written by the family
      fs::copy_file(options.like / name, folder / name);
      written.copied.push_back(name);
    }
    if (options.like.empty() || tokenizer_file_in(options.like).empty())
      copy_tokenizer(options.tokenizer, context_of(model), folder);
    if (lowered > 0 && fs::exists(folder / kTokenizerConfig))
      lower_length(lowered, folder, written);
    return checkpoint::write_safetensors(
        folder / "model.safetensors", all.tensors, metadata, {.dtype = written.dtype});
  });
  return written;
}

}  // namespace lockstep::huggingface
