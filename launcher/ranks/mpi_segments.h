#pragma once
// Open MPI's shared-memory files: removes those of killed runs, and checks for room.

namespace lockstep::launcher {

// Prepares /dev/shm for the files (vader_segment.*) through which Open MPI's ranks of a node
// communicate. Call it before MPI_Init; only one rank of a node acts. Removes this user's files of
// earlier runs, which remain if mpirun is killed together with all ranks: old ones that no process
// has mapped. Warns on stderr if there is too little room for those of this run.
void prepare_mpi_segments();

}  // namespace lockstep::launcher
