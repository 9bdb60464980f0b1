// Stands in for launcher/cuda/slices_nccl.cc: the same communicator, with NCCL's stand-in.
#include "collectives/nccl/nccl_communicator.h"
#include "launcher/cuda/slices.h"
#include "tests/fibers/nccl_on_host.h"

namespace lockstep::cuda {

std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          Stream compute,
                                          const GpuRequest& request) {
  return make_nccl_communicator(
      control,
      compute,
      {request.init_timeout_s, request.operation_timeout_s, request.share_gpu},
      fibers::nccl_on_host());
}

}  // namespace lockstep::cuda
