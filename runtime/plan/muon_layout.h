#pragma once
// How ranks share out the matrices that Muon orthogonalizes. Pure arithmetic, the same on every
// rank.
//
// A matrix lies in the flat buffer, of which each rank owns slices, but one rank orthogonalizes it
// as a whole. The matrices are processed in rounds, the most expensive first, and each rank takes
// one per round. So ranks have about the same work, and messages need memory for one round only.
// Which rank takes a matrix never changes a bit.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/config/run_config.h"

namespace lockstep::plan {

struct ParameterLayout;
struct ShardingPlan;

// Rows of a parameter that form one matrix: the whole parameter, or one of its row_parts.
struct MuonMatrix {
  size_t slot = 0;           // the parameter's slot
  collectives::Range range;  // in the flat buffer
  int64_t rows = 0, columns = 0;
  float scale = 1;  // multiplies the orthogonalized matrix
  int owner = 0;    // the rank that orthogonalizes it
};

// Matrices [first, first + count) of the layout, each with a different owner.
struct MuonRound {
  size_t first = 0, count = 0;
  // Number of floats. If each rank owns slices: the max that one rank holds of a matrix that
  // another rank takes. If every rank holds everything: the part of each matrix that is sent at a
  // time.
  int64_t slot = 0;
};

// Workspace bytes of a backend to orthogonalize one matrix.
using NewtonSchulzBytes = std::function<size_t(int64_t rows, int64_t columns)>;

struct MuonLayout {
  std::vector<MuonMatrix> matrices;  // in the order of the rounds
  std::vector<MuonRound> rounds;
  int ranks = 1;
  // Whether a rank holds only its slices of the momentum. Otherwise it holds all of it, and the
  // results are gathered.
  bool sharded = false;
  int iterations = 5;

  // Memory in bytes. matrix_bytes: one matrix, unless it lies whole in the gradients.
  // scratch_bytes: used in turns for the workspace of Newton-Schulz and for messages.
  size_t matrix_bytes = 0, scratch_bytes = 0;
  size_t bytes() const { return matrix_bytes + scratch_bytes; }
  // Bytes that a rank sends in a step.
  int64_t sent_bytes() const;
};

// The indices of the parameters that Muon updates: hidden matrices. AdamW updates the others.
std::vector<size_t> muon_slots(const MuonConfig& config, const ParameterLayout& layout);

MuonLayout make_muon_layout(const MuonConfig& config,
                            const ParameterLayout& parameters,
                            const ShardingPlan& sharding,
                            const NewtonSchulzBytes& newton_schulz_bytes);

}  // namespace lockstep::plan
