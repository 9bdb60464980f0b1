#pragma once
// The tensors of a folder as Hugging Face's save_pretrained writes it: model.safetensors, or shards
// of it that model.safetensors.index.json lists.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"

namespace lockstep::huggingface {

// Files opened for reading. Errors are CheckpointError (what is there does not fit together) or
// IoError.
class TensorFiles {
 public:
  // Of a folder, or of a single safetensors file. Refuses folders without such files, with a word on
  // what to do where there are others, a shard that is listed and not there, and a tensor that is
  // not in the shard listed for it.
  explicit TensorFiles(const std::filesystem::path& path);

  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  // By name.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // Null where there is none.
  const Tensor* find(const std::string& name) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Tensor> tensors_;
};

// The tensor's values, (elements) floats; F16 and BF16 are converted. Throws CheckpointError where one is
// NaN or infinite.
void read(const TensorFiles::Tensor& tensor, float* out);

}  // namespace lockstep::huggingface
