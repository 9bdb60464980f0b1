#include <algorithm>
#include <array>
#include <cmath>
#include <list>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
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
                                    "tokenizer_config.json",
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
  family.write(model, slices, config);
  const FolderTensors all = tensors_of(family, model, slices, flat);
  WrittenFolder written;
  written.dtype = options.dtype ? *options.dtype : dtype_like(options.like, family, all.tensors);
  if (written.dtype == FileDtype::kF16) check_range<Float16>(all.tensors, "f16");
  if (written.dtype == FileDtype::kBf16) check_range<BFloat16>(all.tensors, "bf16");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(written.dtype);
  std::map<std::string, std::string> metadata = options.metadata;
  metadata["format"] = "pt";  // without it from_pretrained refuses the file
  written.weights = make_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / kConfigFile, config.dump({.indent = 2}) + "\n");
    family.write_others(model, folder);
    for (const char* name : kOtherFiles) {
      if (options.like.empty() || !fs::is_regular_file(options.like / name)) continue;
      fs::copy_file(options.like / name, folder / name);
      written.copied.push_back(name);
    }
    return write_safetensors(
        folder / "model.safetensors", all.tensors, metadata, {.dtype = written.dtype});
  });
  return written;
}

}  // namespace lockstep::huggingface
