#pragma once
// The names of the classes that a run learned, in its checkpoints.

#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"

namespace lockstep {

// Puts the names into the state's extra texts; none where the data name no classes, or where the
// names take more than 64 MiB. Bytes that are not UTF-8 become U+FFFD.
void keep_class_names(const std::vector<std::string>& names, CheckpointState& state);

// (classes) by number; none where the checkpoint has none, as those of older versions. `origin` names
// it. Throws CheckpointError where they cannot be read.
std::vector<std::string> kept_class_names(const CheckpointState& state, const std::string& origin);

}  // namespace lockstep
