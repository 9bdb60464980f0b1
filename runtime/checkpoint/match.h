#pragma once
// Compares the tensors of a file with those of a model.

#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"

namespace lockstep {

using ShapeByName = std::map<std::string, std::vector<int64_t>>;

ShapeByName shapes_in_memory(const std::vector<NamedSlice>& slices);
ShapeByName shapes_in_files(const std::vector<NamedSlice>& slices);
ShapeByName shapes_of(const SafetensorsFile& file);

// Whether the tensor is a counter that other programs store and that no model here has.
bool is_bookkeeping(const std::string& name);

// A line for every tensor that is missing, has another shape or is not expected.
std::vector<std::string> list_mismatches(const ShapeByName& found, const ShapeByName& expected);

// Throws CheckpointError unless both have the same names with the same shapes. The message names
// the first mismatches.
void require_match(const ShapeByName& found,
                   const ShapeByName& expected,
                   const std::string& origin);

// "'a', 'b' and 3 more".
std::string name_list(const std::vector<std::string>& names);

}  // namespace lockstep
