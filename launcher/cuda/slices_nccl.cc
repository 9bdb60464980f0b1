#include "collectives/nccl/nccl_communicator.h"
#include "launcher/cuda/slices.h"

namespace lockstep::cuda {

std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          Stream compute,
                                          const GpuRequest& request) {
  return make_nccl_communicator(
      control, compute, {request.init_timeout_s, request.operation_timeout_s, request.share_gpu});
}

}  // namespace lockstep::cuda
