#include "launcher/cuda/nccl_options.h"
#include "launcher/cuda/slices.h"

namespace lockstep::cuda {

std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          CudaBackend& backend,
                                          const GpuRequest& request,
                                          const ConnectRequest& waiting,
                                          const OperationMarks& marks) {
  return make_nccl_communicator(
      control, backend.stream(), nccl_options(control, backend, request, waiting, marks));
}

}  // namespace lockstep::cuda
