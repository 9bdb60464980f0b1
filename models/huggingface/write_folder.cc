#include <algorithm>
#include <array>
#include <cmath>
#include <list>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/labels.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/unfinished_folder.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/half.h"
#include "runtime/base/transpose.h"
#include "runtime/checkpoint/file_form.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// What tokenizers, generation and preprocessing read.
constexpr std::array kOtherFiles = {"added_tokens.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "generation_config.json",
                                    "merges.txt",
                                    "preprocessor_config.json",
                                    "sentencepiece.bpe.model",
                                    "special_tokens_map.json",
                                    "spiece.model",
                                    "tokenizer.json",
                                    "tokenizer.model",
                                    kTokenizerConfig,
                                    "vocab.json",
                                    "vocab.txt"};

// The tensors as the folder has them; those that are transposed are copies.
struct FolderTensors {
  std::vector<F32Tensor> tensors;
  std::list<std::vector<float>> copies;
};

FolderTensors tensors_of(const Family& family,
                         const ModelConfig& model,
                         const std::vector<NamedSlice>& slices,
                         const float* flat) {
  FolderTensors all;
  for (const NamedSlice& slice : slices) {
    for (F32Tensor& tensor : folder_tensors(family, model, slice, flat, all.copies))
      all.tensors.push_back(std::move(tensor));
  }
  return all;
}

// Whether the folder has weights that dtype_like() could go by.
bool has_weights(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "model.safetensors", error) ||
         fs::exists(folder / "model.safetensors.index.json", error);
}

// Refuses numbers that the dtype, which the user asked for, would make infinite.
template <typename T>
void check_range(const std::vector<F32Tensor>& tensors, const char* dtype) {
  for (const F32Tensor& tensor : tensors)
    for (const float x : tensor.values)
      if (std::isfinite(x) && !std::isfinite(to_float(round_to<T>(x))))
        throw ConfigError(
            "--dtype: value is {}; allowed: f32, as '{}' has {}, which that cannot hold",
            dtype,
            tensor.name,
            x);
}

template <typename T>
bool holds(const std::vector<F32Tensor>& tensors) {
  const auto exact = [](float x) { return to_float(round_to<T>(x)) == x; };
  return std::all_of(tensors.begin(), tensors.end(), [&](const F32Tensor& tensor) {
    return std::all_of(tensor.values.begin(), tensor.values.end(), exact);
  });
}

// The dtype of all weights of the folder, if it has weights of one dtype and that holds `tensors`.
FileDtype dtype_like(const fs::path& folder,
                     const Family& family,
                     const std::vector<F32Tensor>& tensors) {
  if (folder.empty() || !has_weights(folder)) return FileDtype::kF32;
  const TensorFiles files(folder);
  const auto all_are = [&](const std::string& dtype) {
    return std::all_of(files.tensors().begin(), files.tensors().end(), [&](const auto& tensor) {
      return tensor.second.entry->dtype == dtype || family.is_no_weight(tensor.first);
    });
  };
  if (all_are("BF16") && holds<BFloat16>(tensors)) return FileDtype::kBf16;
  if (all_are("F16") && holds<Float16>(tensors)) return FileDtype::kF16;
  return FileDtype::kF32;
}

// The config.json of a folder of the same family: the fields of another would stay among its own.
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

// How many a config.json has; 0: it does not say.
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

// A model of fewer positions than that of the tokenizer: texts are cut to as many tokens.
void lower_length(int64_t context, const fs::path& folder, WrittenFolder& written) {
  constexpr const char* kLength = "model_max_length";
  const fs::path path = folder / kTokenizerConfig;
  Json json = read_json(path);
  const Json* const length = json.find(kLength);
  if (length == nullptr || !is_number(*length)) return;
  if (length->get<double>() <= static_cast<double>(context)) return;
  json[kLength] = context;
  write_file_atomically(path, json.dump({.indent = 2}) + "\n");
  std::replace(written.copied.begin(),
               written.copied.end(),
               std::string(kTokenizerConfig),
               fmt::format("{}, but for a {} of {},", kTokenizerConfig, kLength, context));
}

const char* torch_name(FileDtype dtype) {
  switch (dtype) {
    case FileDtype::kF32: return "float32";
    case FileDtype::kF16: return "float16";
    case FileDtype::kBf16: return "bfloat16";
  }
  return "";
}

}  // namespace

std::vector<F32Tensor> folder_tensors(const Family& family,
                                      const ModelConfig& model,
                                      const NamedSlice& slice,
                                      const float* flat,
                                      std::list<std::vector<float>>& copies) {
  std::vector<F32Tensor> tensors;
  for (const TensorPlace& place : places_of(family, model, slice)) {
    const float* values = flat + slice.offset + place.first * place.columns;
    const auto elements = static_cast<size_t>(place.rows * place.columns);
    if (place.part.transposed || place.reordered) {
      std::vector<float>& copy = copies.emplace_back(elements);
      if (place.reordered) {
        to_file_order(slice, values, copy.data());
      } else {
        transpose(values, place.columns, place.rows, copy.data());
      }
      values = copy.data();
    }
    tensors.push_back({place.part.name, place.extents, {values, elements}});
  }
  return tensors;
}

WrittenFolder write_folder(const fs::path& out,
                           const ModelConfig& model,
                           const std::vector<NamedSlice>& slices,
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
  if (written.dtype == FileDtype::kF16) check_range<Float16>(all.tensors, "f16");
  if (written.dtype == FileDtype::kBf16) check_range<BFloat16>(all.tensors, "bf16");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(written.dtype);
  std::map<std::string, std::string> metadata = options.metadata;
  metadata["format"] = "pt";  // without it from_pretrained refuses the file
  if (!options.like.empty() && options.class_names.empty() && !label_names(config).empty())
    written.copied.push_back("id2label of config.json");
  written.weights = make_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / kConfigFile, config.dump({.indent = 2}) + "\n");
    family.write_others(model, options, config, folder);
    for (const char* name : kOtherFiles) {
      if (options.like.empty() || !is_file(options.like / name)) continue;
      if (fs::exists(folder / name)) continue;  // the family's
      fs::copy_file(options.like / name, folder / name);
      written.copied.push_back(name);
    }
    if (lowered > 0 && fs::exists(folder / kTokenizerConfig))
      lower_length(lowered, folder, written);
    return write_safetensors(
        folder / "model.safetensors", all.tensors, metadata, {.dtype = written.dtype});
  });
  return written;
}

}  // namespace lockstep::huggingface
