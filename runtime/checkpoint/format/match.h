#pragma once
// Compares the tensors of a file with those of a model.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

using ShapeByName = std::map<std::string, std::vector<int64_t>>;

ShapeByName shapes_in_memory(const std::vector<NamedSlice>& slices);
ShapeByName shapes_in_files(const std::vector<NamedSlice>& slices);
ShapeByName shapes_of(const SafetensorsFile& file);
std::set<std::string> names_of(const ShapeByName& shapes);

// The tensors of a file by their names without what wrappers add to them (wrapped_names.h), and
// without bookkeeping.
struct PlainTensors {
  ShapeByName shapes;
  std::map<std::string, std::string> name_in_file;
  std::string note;  // a sentence for the log; empty if no name changes
};
PlainTensors plain_tensors(const SafetensorsFile& file, const std::set<std::string>& known);

// Whether the tensor is a counter that other programs store and that no model here has.
bool is_bookkeeping(const std::string& name);

// A line for every tensor that is missing, has another shape or is not expected.
std::vector<std::string> list_mismatches(const ShapeByName& found, const ShapeByName& expected);

// Throws CheckpointError with the number of these lines and the first one, if there are any.
// `whose`: "the model's"; `hint` ends the message.
void refuse_mismatches(const std::string& origin,
                       const std::vector<std::string>& mismatches,
                       const std::string& whose = "the model's",
                       const std::string& hint = "");

// Throws CheckpointError unless both have the same names with the same shapes. The message names
// the first mismatches.
void require_match(const ShapeByName& found,
                   const ShapeByName& expected,
                   const std::string& origin);

// "'a', 'b' and 3 more".
std::string name_list(const std::vector<std::string>& names);

}  // namespace lockstep::checkpoint
