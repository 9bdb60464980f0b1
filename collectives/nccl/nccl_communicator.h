#pragma once
// A Communicator for memory of GPUs, over NCCL.
//
// Nothing it does blocks the host: operations are queued on a stream of their own, which waits for
// what `compute` had been given before, and wait() makes `compute` wait for them. So buffers belong
// to the operation in the order of the streams, and all of it can be captured in a CUDA graph, if
// every started operation is waited for before the capture ends and the same capture is made on all
// ranks. Run the operations once before capturing them: NCCL connects peers at first use. Destroy
// such a graph before the communicator.

#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "runtime/cuda/stream.h"

namespace lockstep {

struct NcclLibrary;

struct NcclOptions {
  double init_timeout_s = 300;
  // For check(): until work that is queued must be done, the first time and later; then it may also
  // take three times as long as it ever did.
  double first_timeout_s = 1800, operation_timeout_s = 1800;
  bool share_gpu = false;  // several ranks on one GPU, for tests: slow, over sockets
  // Called every few milliseconds while the host waits for NCCL; throws when another rank has
  // ended.
  std::function<void()> watch = nullptr;
  // Where it is given, all that is queued is queued by work that is passed to it, and which it may
  // run again and again: for graphs in which NCCL is not to be captured.
  std::function<void(std::function<void()>)> outside = nullptr;
};

// Connects all ranks; collective over `control`, the ranks' host communicator, which is borrowed
// for this call only. `compute` is the stream whose work produces and consumes the buffers; the
// current device must be its device, and it must outlive the communicator.
//
// Throws AgreedError, on all ranks: libnccl is missing, its versions differ, or ranks share a GPU
// without share_gpu; CommError: NCCL fails, or does not connect the ranks in time. Operations throw
// CommError when NCCL refuses them; what fails on the device check() tells. After a failure, or
// while another exception is thrown, the destructor aborts what is under way; else it waits for it,
// but not for ever.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     cuda::Stream compute,
                                                     const NcclOptions& options);

// The same with another library than libnccl, which must outlive the communicator.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     cuda::Stream compute,
                                                     const NcclOptions& options,
                                                     const NcclLibrary& library);

}  // namespace lockstep
