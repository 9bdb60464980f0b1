#pragma once
// What Open MPI must be told before it starts.

namespace lockstep {

// Sets the environment variables that Open MPI needs on this node. Call before MPI_Init, while the
// process has one thread.
//  - In a folder made by `cmake --install` (the program in bin/, and etc/lockstep/mpi_environment):
//    where Open MPI's plugins and texts lie. That goes before what is set, since a foreign mpirun
//    names the plugins of another Open MPI.
//  - Where the system forbids to read another process's memory, as containers do: that ranks of a
//    node hand over large messages through shared memory. What the user has set stays.
void prepare_mpi_environment();

}  // namespace lockstep
