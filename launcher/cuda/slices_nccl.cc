#include "collectives/nccl/library.h"
#include "launcher/cuda/nccl_options.h"
#include "launcher/cuda/slices.h"
#include "runtime/base/error.h"

namespace lockstep::cuda {

std::unique_ptr<collectives::Communicator> make_slices(collectives::Communicator& control,
                                                       CudaBackend& backend,
                                                       const GpuRequest& request,
                                                       const exec::ConnectRequest& waiting,
                                                       const OperationMarks& marks) {
  return collectives::make_nccl_communicator(
      control, backend.stream(), nccl_options(control, backend, request, waiting, marks));
}

std::string nccl_version() {
  int version = 0;
  try {
    if (collectives::nccl_library().get_version(&version) != ncclSuccess) return "";
  } catch (const Error&) {  // it is missing
    return "";
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace lockstep::cuda
