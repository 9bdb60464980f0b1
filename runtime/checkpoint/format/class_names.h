#pragma once
// The names of a run's classes, stored in its checkpoints.

#include <string>
#include <vector>

#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// Stores the names in the state's extra texts. Stores nothing if there are no names, or if they
// take more than 64 MiB. Bytes that are not UTF-8 become U+FFFD.
void keep_class_names(const std::vector<std::string>& names, CheckpointState& state);

// Returns the names by class number; empty if the checkpoint has none, as those of older versions.
// `origin` names the checkpoint in errors. Throws CheckpointError if they cannot be read.
std::vector<std::string> kept_class_names(const CheckpointState& state, const std::string& origin);

}  // namespace lockstep::checkpoint
