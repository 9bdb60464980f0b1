#pragma once
// How the files of a checkpoint divide its contents; shared by writer, reader and verifier.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/checkpoint/state.h"

namespace lockstep {

// "optimizer-00003-of-00008.safetensors", rank counted from 0.
std::string optimizer_file_name(int64_t rank, int64_t ranks);

// One stored piece of an optimizer moment: flat elements [begin, begin + elements).
struct MomentPiece {
  int64_t begin = 0;
  int64_t elements = 0;
  size_t file = 0;    // index in state.files
  size_t tensor = 0;  // index in that file's tensors
};

// All pieces of `moment` in ascending order. Throws CheckpointError on a tensor whose name is not
// "<moment>.<begin>".
std::vector<MomentPiece> moment_pieces(const CheckpointState& state, const std::string& moment);

// Flat elements that there are none of in `moment`, increasing: of a second moment, the parameters
// state.one_moment with the padding behind each.
std::vector<Range> left_out(const CheckpointState& state, const std::string& moment);

// What does not fit together in the state, a line each: files missing or named twice, a model that
// is not the layout, moments that the shards do not cover exactly once.
std::vector<std::string> find_inconsistencies(const CheckpointState& state);

}  // namespace lockstep
