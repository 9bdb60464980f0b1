#pragma once
// The tensors of a folder that Hugging Face's save_pretrained wrote: model.safetensors, or the
// shards that model.safetensors.index.json lists.

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.h"

namespace lockstep::huggingface {

// Files opened for reading. Errors are CheckpointError (missing or inconsistent files) or IoError.
class TensorFiles {
 public:
  // `path` is a folder or a single safetensors file. Rejects a folder without such files (the error
  // explains how to convert pytorch_model.bin), a missing shard, and a tensor that is not in the
  // shard listed for it.
  explicit TensorFiles(const std::filesystem::path& path);

  struct Tensor {
    const checkpoint::SafetensorsFile* file;
    const checkpoint::SafetensorsEntry* entry;
  };
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // Removes what wrappers added to the names (checkpoint/format/wrapped_names.h). `known` are the
  // model's names. Returns a sentence for the log, or an empty text.
  std::string remove_wrappers(const std::set<std::string>& known, const std::string& origin);
  // Null if there is none.
  const Tensor* find(const std::string& name) const;

 private:
  std::vector<checkpoint::SafetensorsFile> files_;
  std::map<std::string, Tensor> tensors_;
};

// Reads the tensor's values into `out`, (elements) floats; F16 and BF16 are converted. Throws
// CheckpointError if one is NaN or infinite.
void read(const TensorFiles::Tensor& tensor, float* out);

}  // namespace lockstep::huggingface
