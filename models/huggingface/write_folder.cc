#include <algorithm>
#include <array>
#include <list>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/open_config.h"
#include "models/huggingface/tensor_files.h"
#include "models/huggingface/weights.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/half.h"
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
    for (const TensorPlace& place : places_of(family, model, slice)) {
      const float* values = flat + slice.offset + place.first * place.columns;
      const auto elements = static_cast<size_t>(place.rows * place.columns);
      if (place.part.transposed || place.reordered) {
        std::vector<float>& copy = all.copies.emplace_back(elements);
        if (place.reordered) {
          to_file_order(slice, values, copy.data());
        } else {
          transpose(values, place.columns, place.rows, copy.data());
        }
        values = copy.data();
      }
      all.tensors.push_back({place.part.name, place.extents, {values, elements}});
    }
  }
  return all;
}

template <typename T>
bool holds(const std::vector<F32Tensor>& tensors) {
  const auto exact = [](float x) { return to_float(round_to<T>(x)) == x; };
  return std::all_of(tensors.begin(), tensors.end(), [&](const F32Tensor& tensor) {
    return std::all_of(tensor.values.begin(), tensor.values.end(), exact);
  });
}

// The dtype of all tensors of the folder, if it has weights of one dtype and that holds `tensors`.
FileDtype dtype_like(const fs::path& folder, const std::vector<F32Tensor>& tensors) {
  if (folder.empty()) return FileDtype::kF32;
  const TensorFiles files(folder);
  const auto all_are = [&](const std::string& dtype) {
    return std::all_of(files.tensors().begin(), files.tensors().end(), [&](const auto& tensor) {
      return tensor.second.entry->dtype == dtype;
    });
  };
  if (all_are("BF16") && holds<BFloat16>(tensors)) return FileDtype::kBf16;
  if (all_are("F16") && holds<Float16>(tensors)) return FileDtype::kF16;
  return FileDtype::kF32;
}

const char* torch_name(FileDtype dtype) {
  switch (dtype) {
    case FileDtype::kF32: return "float32";
    case FileDtype::kF16: return "float16";
    case FileDtype::kBf16: return "bfloat16";
  }
  return "";
}

// Removes what it names unless it is told that all went well.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& out) : path_(out.string() + ".tmp") {
    if (fs::exists(out))
      throw CheckpointError("{}: exists already; give the name of a new folder", out.string());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!done_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void become(const fs::path& out) {
    fs::rename(path_, out);
    done_ = true;
  }

 private:
  const fs::path path_;
  bool done_ = false;
};

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

WrittenFolder write_folder(const fs::path& out,
                           const ModelConfig& model,
                           const std::vector<NamedSlice>& slices,
                           const float* flat,
                           const FolderOptions& options) {
  const Family& family = family_to_use(model);
  Json config = options.like.empty() ? Json::object() : OpenConfig(options.like).json;
  family.write(model, slices, config);
  const FolderTensors all = tensors_of(family, model, slices, flat);
  WrittenFolder written;
  written.dtype = options.dtype ? *options.dtype : dtype_like(options.like, all.tensors);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(written.dtype);
  std::map<std::string, std::string> metadata = options.metadata;
  metadata["format"] = "pt";  // without it from_pretrained refuses the file
  try {
    const fs::path target = without_slash(out);
    Unfinished folder(target);
    write_file_atomically(folder.path() / kConfigFile, config.dump({.indent = 2}) + "\n");
    for (const char* name : kOtherFiles) {
      if (options.like.empty() || !fs::is_regular_file(options.like / name)) continue;
      fs::copy_file(options.like / name, folder.path() / name);
      written.copied.push_back(name);
    }
    written.weights = write_safetensors(
        folder.path() / "model.safetensors", all.tensors, metadata, {.dtype = written.dtype});
    folder.become(target);
  } catch (const fs::filesystem_error& error) {
    throw IoError("write", error.path1().string(), error.code().value());
  }
  return written;
}

}  // namespace lockstep::huggingface
