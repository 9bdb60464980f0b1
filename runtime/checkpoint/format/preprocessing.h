#pragma once
// How a run makes the network's inputs of its data, stored in its checkpoints.

#include <optional>
#include <string>

#include "runtime/base/json.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// Stores the fields of a preprocessor_config.json in the state's extra texts, unless they take more
// than 64 MiB. Bytes that are not UTF-8 become U+FFFD.
void keep_preprocessing(const Json& fields, CheckpointState& state);

// Returns these fields. None if the checkpoint has none, as those of older versions. `origin` names
// the checkpoint in errors. Throws CheckpointError if they cannot be read.
std::optional<Json> kept_preprocessing(const CheckpointState& state, const std::string& origin);

}  // namespace lockstep::checkpoint
