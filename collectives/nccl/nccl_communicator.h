#pragma once
// A Communicator for GPU memory, over NCCL.
//
// It never blocks the host. Operations are queued on a stream of their own, which waits for the
// work that `compute` had before, and wait() makes `compute` wait for them. So a buffer belongs to
// the operation in stream order.
//
// All of this can be captured in a CUDA graph, if every started operation is waited for before the
// capture ends and all ranks capture the same. Run the operations once before capturing them, as
// NCCL connects peers at first use. Destroy such a graph before the communicator.

#include <atomic>
#include <functional>
#include <memory>

#include "collectives/communicator.h"

// What cudaStream_t points to; declared here so that this header needs no CUDA header.
struct CUstream_st;

namespace lockstep::collectives {

struct NcclLibrary;

struct NcclOptions {
  double init_timeout_s = 300;
  // For check(): timeouts for queued work, for the first and for all later work. Later work may
  // also take up to three times as long as the longest so far.
  double first_timeout_s = 1800, operation_timeout_s = 1800;
  bool share_gpu = false;  // several ranks on one GPU, for tests: slow, as they use sockets
  // Queues that the device writes down that it has reached this point: the beginning and the end of
  // each operation. `label`: DevicePoint::label() of the operation.
  std::function<void(CUstream_st* stream, uint64_t label)> mark = nullptr;
  const std::atomic<uint64_t>* reached = nullptr;  // what it has written: a DevicePoint
  // Called by check() with the time that the host has waited for the device, 0 once it has not to,
  // and whether that is longer than work may take. Then the watchdogs compare how far the ranks'
  // devices are, and the one that finds out why stops this rank through `watch`.
  std::function<void(double seconds, bool late)> waited = nullptr;
  // Called every few milliseconds while the host waits for NCCL; throws if another rank has ended.
  std::function<void()> watch = nullptr;
  // If set, all work is passed to it instead of being queued directly, and it may run the work
  // repeatedly: for graphs from which NCCL is left out.
  std::function<void(std::function<void()>)> outside = nullptr;
};

// Connects all ranks. Collective over `control`, the ranks' host communicator, which is borrowed
// for this call only. `compute` is the stream that produces and consumes the buffers; it must
// belong to the current device and outlive the communicator.
//
// Throws AgreedError on all ranks if libnccl is missing, its versions differ, or ranks share a GPU
// without share_gpu. Throws CommError if NCCL fails or does not connect the ranks in time.
// Operations throw CommError if NCCL rejects them; check() reports what fails on the device. The
// destructor waits for operations in flight, up to a limit; after a failure, or while an exception
// is thrown, it aborts them.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     CUstream_st* compute,
                                                     const NcclOptions& options);

// The same with another library than libnccl; it must outlive the communicator.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     CUstream_st* compute,
                                                     const NcclOptions& options,
                                                     const NcclLibrary& library);

}  // namespace lockstep::collectives
