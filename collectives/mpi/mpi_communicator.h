#pragma once
// A Communicator over the MPI standard (3.1), for Open MPI and MPICH alike.

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/communicator.h"

namespace lockstep::collectives {

// Runs over a duplicate of MPI_COMM_WORLD. MPI must be initialised, and may be finalised only after
// the communicator is destroyed. Errors of MPI become CommError with MPI's text. Messages longer
// than `piece_bytes` (at most INT_MAX) are sent in pieces. An operation that has not ended after
// `timeout_s` throws CommError; a watchdog (watch/watchdog.h) reports it much sooner, and with the
// cause.
std::unique_ptr<Communicator> make_mpi_communicator(size_t piece_bytes = size_t{1} << 30,
                                                    double timeout_s = 1800);

// The max number of floats, over all ranks' parts, that start_reduce_scatter() can sum: MPI counts
// the full vector in an int.
inline constexpr int64_t kMpiMaxSummedElements = INT_MAX;

}  // namespace lockstep::collectives
