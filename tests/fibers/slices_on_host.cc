// Stands in for launcher/cuda/slices_nccl.cc: the same communicator, with NCCL's stand-in.
#include "launcher/cuda/nccl_options.h"
#include "launcher/cuda/slices.h"
#include "tests/fibers/nccl_on_host.h"

namespace lockstep::cuda {

std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          CudaBackend& backend,
                                          const GpuRequest& request,
                                          const ConnectRequest& waiting,
                                          const OperationMarks& marks) {
  return make_nccl_communicator(control,
                                backend.stream(),
                                nccl_options(control, backend, request, waiting, marks),
                                fibers::nccl_on_host());
}

}  // namespace lockstep::cuda
