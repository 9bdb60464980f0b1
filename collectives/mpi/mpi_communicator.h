#pragma once
// A Communicator over the MPI standard (3.1), for Open MPI and MPICH alike.

#include <memory>

#include "collectives/communicator.h"

namespace lockstep {

// Over a duplicate of MPI_COMM_WORLD; MPI must be initialised, and finalised only after the
// communicator is gone. Errors of MPI become CommError with MPI's text.
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace lockstep
