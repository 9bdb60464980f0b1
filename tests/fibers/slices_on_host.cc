// Stands in for launcher/cuda/slices_nccl.cc: the same communicator, with NCCL's stand-in.
#include "launcher/cuda/nccl_options.h"
#include "launcher/cuda/slices.h"
#include "tests/fibers/nccl_on_host.h"

namespace lockstep::cuda {

std::unique_ptr<collectives::Communicator> make_slices(collectives::Communicator& control,
                                                       CudaBackend& backend,
                                                       const GpuRequest& request,
                                                       const exec::ConnectRequest& waiting,
                                                       const OperationMarks& marks) {
  return collectives::make_nccl_communicator(
      control,
      backend.stream(),
      nccl_options(control, backend, request, waiting, marks),
      fibers::nccl_on_host());
}

std::string nccl_version() { return "stand-in"; }

}  // namespace lockstep::cuda
