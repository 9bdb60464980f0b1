#pragma once
// A Communicator over the MPI standard (3.1), for Open MPI and MPICH alike.

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/communicator.h"

namespace lockstep {

// Over a duplicate of MPI_COMM_WORLD; MPI must be initialised, and finalised only after the
// communicator is gone. Errors of MPI become CommError with MPI's text. What is longer than
// `piece_bytes`, at most INT_MAX, is sent in several messages. An operation that has not ended after
// `timeout_s` throws CommError; a watchdog (watch/watchdog.h) knows much sooner, and more.
std::unique_ptr<Communicator> make_mpi_communicator(size_t piece_bytes = size_t{1} << 30,
                                                    double timeout_s = 1800);

// The longest vector of floats, all ranks' parts, that start_reduce_scatter() can sum: MPI counts
// it whole.
inline constexpr int64_t kMpiMostSummedElements = INT_MAX;

}  // namespace lockstep
