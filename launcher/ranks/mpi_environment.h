#pragma once
// The settings that Open MPI needs before it starts.

namespace lockstep::launcher {

// Sets the environment variables that Open MPI needs on this node. Call it before MPI_Init, while
// the process has one thread.
//  - In a folder made by `cmake --install` (the program in bin/, and etc/lockstep/mpi_environment):
//    the paths of Open MPI's plugins and texts. They override the environment, since a foreign
//    mpirun names the plugins of another Open MPI.
//  - If the system forbids reading another process's memory, as containers do: that ranks of a node
//    pass large messages through shared memory. Does not override the user's setting.
void prepare_mpi_environment();

}  // namespace lockstep::launcher
