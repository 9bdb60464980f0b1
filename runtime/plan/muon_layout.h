#pragma once
// How the matrices that Muon makes orthogonal are shared out: pure arithmetic, the same on every
// rank.
//
// A matrix lies in the flat buffer, of which ranks own slices, and is made orthogonal whole by one
// rank. The matrices are taken in rounds, the costliest first, and each rank takes one in a round:
// so ranks have about the same work, and what travels needs memory for one round alone. Which rank
// takes a matrix never changes a bit.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/sharding.h"
#include "collectives/topology.h"
#include "runtime/config/run_config.h"

namespace lockstep {

struct ParameterLayout;
struct Plan;

// Rows of a parameter that are one matrix: the parameter, or one of its row_parts.
struct MuonMatrix {
  size_t slot = 0;  // of the parameter
  Range range;      // of the flat buffer
  int64_t rows = 0, columns = 0;
  float scale = 1;  // what the orthogonal matrix is multiplied by
  int owner = 0;    // the rank that makes it orthogonal
};

// Matrices [first, first + count) of the layout, no two of one owner.
struct MuonRound {
  size_t first = 0, count = 0;
  // Floats. Where slices are owned: the most that one rank has of a matrix that another one takes.
  // Where every rank has all: the part of each matrix that travels at a time.
  int64_t slot = 0;
};

// Bytes that a backend works in while it makes a matrix orthogonal.
using NewtonSchulzBytes = std::function<size_t(int64_t rows, int64_t columns)>;

struct MuonLayout {
  std::vector<MuonMatrix> matrices;  // in the order of the rounds
  std::vector<MuonRound> rounds;
  int ranks = 1;
  // A rank has only its slices of the momentum; else it has all, and gathers results.
  bool sharded = false;
  int iterations = 5;

  // Memory in bytes: one matrix, where it does not lie whole in the gradients, and then either
  // what Newton-Schulz works in or what travels.
  size_t matrix_bytes = 0, scratch_bytes = 0;
  size_t bytes() const { return matrix_bytes + scratch_bytes; }
  // That a rank sends in a step.
  int64_t sent_bytes() const;
};

// The parameters that Muon takes, by number: hidden matrices. Others take AdamW.
std::vector<size_t> muon_slots(const MuonConfig& config, const ParameterLayout& layout);

// Of a plan whose topology, layout and buckets are decided.
MuonLayout make_muon_layout(const MuonConfig& config,
                            const Plan& plan,
                            const NewtonSchulzBytes& newton_schulz_bytes);

}  // namespace lockstep
