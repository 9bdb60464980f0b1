#pragma once
// NCCL for host memory: its functions as nccl.h declares them, between the processes of an MPI run
// (or one process alone). Each operation is handed to the stream's queue as NCCL hands it to the
// GPU's, so that it runs in the order of the stream and is part of a captured graph.

#include <functional>
#include <memory>

#include "collectives/nccl/library.h"

namespace lockstep::fibers {

// Runs `work` in the order of the stream, or records it while the stream is captured. Brought by
// the stand-in for CUDA's streams that is linked too.
void enqueue(CUstream_st* stream, std::function<void()> work);
// The same for work that is asked until it returns true.
void enqueue_exchange(CUstream_st* stream, std::function<bool()> work);

// Where the stream is being captured, keeps `what` as long as a graph has what is captured. Brought
// by it, too.
void hold(CUstream_st* stream, std::shared_ptr<void> what);

// How long a communicator that ends waits for the graphs that captured it, before it ends the
// program: NCCL would wait forever. Longer than a watchdog waits for a process whose GPU hangs.
inline double graph_wait_ms = 6000;

// MPI must be initialised. Group calls are collected and handed over together, as one operation.
const collectives::NcclLibrary& nccl_on_host();

}  // namespace lockstep::fibers
