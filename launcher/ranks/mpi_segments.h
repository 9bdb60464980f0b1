#pragma once
// Open MPI's files of shared memory: what killed runs left, and whether there is room.

namespace lockstep {

// Looks after the files of /dev/shm (vader_segment.*) by which Open MPI's ranks of a node talk.
// Call before MPI_Init; only one rank of a node does it. Removes those of this user that an earlier
// run has left, as Open MPI does when its mpirun is killed with all ranks: old ones that no process
// has mapped. Says on stderr where there is too little room for those of this run.
void prepare_mpi_segments();

}  // namespace lockstep
