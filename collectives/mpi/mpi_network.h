#pragma once
// Whether MPI has a fast network between hosts, or plain TCP, which our own TCP beats.

namespace lockstep {

// What an MPI library sends messages through between hosts.
enum class MpiNetwork { kUnknown, kPlainTcp, kOther };

// What Open MPI has chosen, as its control variables tell: each component that is in use has some.
// Unknown of other MPI libraries. After MPI_Init.
MpiNetwork mpi_network();

}  // namespace lockstep
