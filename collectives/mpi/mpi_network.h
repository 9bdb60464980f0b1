#pragma once
// Detects whether MPI has a fast network between hosts, or only plain TCP, which Lockstep's own TCP
// transport outperforms.

namespace lockstep::collectives {

// The network through which an MPI library sends messages between hosts.
enum class MpiNetwork { kUnknown, kPlainTcp, kOther };

// Detects Open MPI's choice from its control variables: each component in use has some. Returns
// kUnknown for other MPI libraries. Call it after MPI_Init.
MpiNetwork mpi_network();

}  // namespace lockstep::collectives
