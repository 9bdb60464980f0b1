#pragma once
// How the files of a checkpoint divide its contents. Shared by writer, reader and verifier.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// "optimizer-00003-of-00008.safetensors"; ranks count from 0.
std::string optimizer_file_name(int64_t rank, int64_t ranks);

// One stored piece of an optimizer moment: elements [begin, begin + elements) of the flat buffer.
struct MomentPiece {
  int64_t begin = 0;
  int64_t elements = 0;
  size_t file = 0;    // index in state.files
  size_t tensor = 0;  // index in that file's tensors
};

// All pieces of `moment` in ascending order. Throws CheckpointError if a tensor's name is not
// "<moment>.<begin>".
std::vector<MomentPiece> moment_pieces(const CheckpointState& state, const std::string& moment);

// The ranges of the flat buffer that `moment` does not have, in increasing order. For a second
// moment these are the parameters of state.one_moment, each with the padding behind it; for others,
// what state.partial leaves.
std::vector<collectives::Range> absent_ranges(const CheckpointState& state,
                                              const std::string& moment);

// A line for each inconsistency of the state: files that are missing or listed twice, a model whose
// tensors are not those of the layout, moments that the shards do not cover exactly once.
std::vector<std::string> find_inconsistencies(const CheckpointState& state);

}  // namespace lockstep::checkpoint
