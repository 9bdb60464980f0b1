#include "launcher/cuda/nccl_options.h"
#include "launcher/cuda/slices.h"

namespace lockstep::cuda {

std::unique_ptr<collectives::Communicator> make_slices(collectives::Communicator& control,
                                                       CudaBackend& backend,
                                                       const GpuRequest& request,
                                                       const exec::ConnectRequest& waiting,
                                                       const OperationMarks& marks) {
  return collectives::make_nccl_communicator(
      control, backend.stream(), nccl_options(control, backend, request, waiting, marks));
}

}  // namespace lockstep::cuda
