#pragma once
// From the tensors of a folder to the parameters of a model.

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/tensor_files.h"
#include "runtime/checkpoint/state.h"

namespace lockstep::huggingface {

// A part of one of our tensors: rows [first, first + rows) of (rows, columns).
struct TensorPlace {
  TensorPart part;
  std::vector<int64_t> extents;  // in the folder
  bool reordered = false;        // the whole tensor lies channels last here, channels first there
  int64_t first = 0, rows = 0, columns = 1;
};

// Where a folder has the tensor, in the order of rows.
std::vector<TensorPlace> places_of(const Family& family,
                                   const ModelConfig& model,
                                   const NamedSlice& slice);

// The extents of our tensor, as the folder's parts of it have them; none where it has no such parts.
std::optional<std::vector<int64_t>> extents_of(const Family& family,
                                               const TensorFiles& files,
                                               const ModelConfig& model,
                                               const std::string& name);

// Fills the place of `parameter`, which is the slice's, from the folder's tensor of its extents, or one
// that has more rows behind.
void read_place(const TensorFiles::Tensor& tensor,
                const NamedSlice& slice,
                const TensorPlace& place,
                float* parameter);

// What a folder has of the slice; those that are transposed are in `copies`.
std::vector<F32Tensor> folder_tensors(const Family& family,
                                      const ModelConfig& model,
                                      const NamedSlice& slice,
                                      const float* flat,
                                      std::list<std::vector<float>>& copies);

// As read_weights() of folder.h; `origin` names the folder, and `theirs` is the model that it has.
WeightsRead fill_weights(const Family& family,
                         const TensorFiles& files,
                         const std::string& origin,
                         const ModelConfig& theirs,
                         const ModelConfig& model,
                         const std::vector<NamedSlice>& slices,
                         float* flat);

}  // namespace lockstep::huggingface
