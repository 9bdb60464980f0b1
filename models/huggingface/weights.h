#pragma once
// Reads the tensors of a folder into the parameters of a model.

#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/huggingface/family.h"
#include "models/huggingface/tensor_files.h"
#include "runtime/checkpoint/format/reader.h"

namespace lockstep::huggingface {

// Rows [first, first + rows) of a parameter (rows, columns), as a folder stores them.
struct StoredPart {
  TensorPart part;
  std::vector<int64_t> extents;  // in the folder
  bool reordered = false;        // channels last in the model, channels first in the folder
  int64_t first = 0, rows = 0, columns = 1;
};

// The parts of the parameter in a folder, in the order of rows.
std::vector<StoredPart> stored_parts(const Family& family,
                                     const ModelConfig& model,
                                     const checkpoint::NamedSlice& slice);

// The extents of the model's tensor `name`, put together from the folder's parts of it; none if a
// part is missing.
std::optional<std::vector<int64_t>> extents_of(const Family& family,
                                               const TensorFiles& files,
                                               const ModelConfig& model,
                                               const std::string& name);

// All names that the model's tensors may have in a folder: with and without the prefix of the body,
// and older ones.
std::set<std::string> names_in_folders(const Family& family,
                                       const ModelConfig& model,
                                       const std::vector<checkpoint::NamedSlice>& slices);

// Fills the rows of this part in `parameter`, the values of `slice`. The folder's tensor has the
// part's extents, or more rows, of which the first are read.
void read_part(const TensorFiles::Tensor& tensor,
               const checkpoint::NamedSlice& slice,
               const StoredPart& stored,
               float* parameter);

// The tensors that a folder has for the slice. They point into `flat`, or into `copies` if they had
// to be transposed or reordered.
std::vector<checkpoint::F32Tensor> folder_tensors(const Family& family,
                                                  const ModelConfig& model,
                                                  const checkpoint::NamedSlice& slice,
                                                  const float* flat,
                                                  std::list<std::vector<float>>& copies);

// Like read_weights() of folder.h. `origin` is the path of the folder, `theirs` the model of its
// config.json.
checkpoint::WeightsRead fill_weights(const Family& family,
                                     TensorFiles files,
                                     const std::string& origin,
                                     const ModelConfig& theirs,
                                     const ModelConfig& model,
                                     const std::vector<checkpoint::NamedSlice>& slices,
                                     float* flat);

}  // namespace lockstep::huggingface
