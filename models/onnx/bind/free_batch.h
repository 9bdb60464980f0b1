#pragma once
// Files whose batch axis was fixed by the example with which they were exported, as
// torch.onnx.export(model, (x,), path) does: the same network with an open batch axis.

#include <cstdint>
#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

struct FreedFile {
  File file = {};
  std::string reason = {};             // why the axis cannot be freed; empty: it is free
  int64_t changes = 0;                 // nodes whose shapes or constants had the batch in them
  std::vector<int> node_numbers = {};  // of the nodes that the file had, in the new one
};

// What bind() needs for this batch: some extent for every other open axis.
BindOptions options_with_batch(const File& file, int64_t batch);

// Opens the first axis of all inputs, whose extent must be the same `batch`, and changes the nodes
// that have the batch in a constant: shapes of Reshape and Expand, and operands of Concat and
// recurrences that have a row for each sample. They are found by binding the file to `batch` and to
// another one. The result still has to be checked for nodes that mix samples.
FreedFile free_batch(const File& file, const Classes& classes, int64_t batch);

}  // namespace lockstep::onnx
