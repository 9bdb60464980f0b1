#pragma once
// What Open MPI needs before it starts: its settings, and room for its shared-memory files.

#include <cstdint>

namespace lockstep::launcher {

// Bytes of /dev/shm that Open MPI takes for each rank of a node: the default of
// btl_vader_segment_size.
inline constexpr uint64_t kMpiSegmentBytes = uint64_t{4} << 20;

// Sets the environment variables that Open MPI needs on this node. Call it before MPI_Init, while
// the process has one thread.
//  - In a folder made by `cmake --install` (the program in bin/, and etc/lockstep/mpi_environment):
//    the paths of Open MPI's plugins and texts. They override the environment, since a foreign
//    mpirun names the plugins of another Open MPI.
//  - If the system forbids reading another process's memory, as containers do: that ranks of a node
//    pass large messages through shared memory. Does not override the user's setting.
void prepare_mpi_environment();

// Prepares /dev/shm for the files (vader_segment.*) through which Open MPI's ranks of a node
// communicate. Call it before MPI_Init; only one rank of a node acts. Removes this user's files of
// earlier runs, which remain if mpirun is killed together with all ranks: old ones that no process
// has mapped. Warns on stderr if there is too little room for those of this run.
void prepare_mpi_segments();

}  // namespace lockstep::launcher
