// Replaces slices_nccl.cc in builds without NCCL.
#include "collectives/agree/agreement.h"
#include "launcher/cuda/slices.h"

namespace lockstep::cuda {

std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          CudaBackend&,
                                          const GpuRequest&,
                                          const ConnectRequest&,
                                          const OperationMarks&) {
  throw AgreedError(ExitCode::kUsage,
                    fmt::format("this build has no NCCL, which {} ranks on GPUs need: install "
                                "libnccl-dev and build again",
                                control.size()));
}

std::string nccl_version() { return ""; }

}  // namespace lockstep::cuda
