// Catches: bytes that the communicator over NCCL sends to the wrong place, for any size. Run under
// mpirun: NCCL's functions are a stand-in over MPI, CUDA's streams run what they are given at once.
#include <mpi.h>

#include "collectives/mpi/mpi_communicator.h"
#include "collectives/nccl/nccl_communicator.h"
#include "tests/distributed/communicator_checks.h"
#include "tests/fibers/nccl_on_host.h"
#include "tests/reference/cuda_runtime_stub.h"

namespace lockstep {
namespace {

void run() {
  const auto control = make_mpi_communicator();
  testing::cuda_stub().bus_id = "GPU of rank " + std::to_string(control->rank());
  const auto communicator = make_nccl_communicator(
      *control, testing::compute_stream(), NcclOptions{}, fibers::nccl_on_host());
  for (const size_t bytes : {0, 1, 3, 4097, 1'000'003}) {
    testing::check_bytes(*communicator, bytes);
    testing::check_sums(*communicator, static_cast<int64_t>(bytes / 4));
    communicator->check();
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lockstep::run();
  MPI_Finalize();
  return lockstep::testing::failures == 0 ? 0 : 1;
}
