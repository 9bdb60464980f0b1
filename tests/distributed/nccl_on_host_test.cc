// Catches: bytes that the communicator over NCCL sends to the wrong place, for any size; a stand-in
// for NCCL that does not find the mistakes that it is there to find. Run under mpirun: NCCL's
// functions are a stand-in over MPI, CUDA's streams run what they are given at once. With the word
// "differ" ranks gather different numbers of bytes, which must end the program.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "collectives/mpi/mpi_communicator.h"
#include "collectives/nccl/nccl_communicator.h"
#include "tests/distributed/communicator_checks.h"
#include "tests/fibers/nccl_on_host.h"
#include "tests/reference/cuda_runtime_stub.h"

namespace lockstep::test {
namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  ++testing::failures;
}

// A communicator without any help.
ncclComm_t raw_communicator(int rank, int ranks, ncclResult_t wanted) {
  const collectives::NcclLibrary& nccl = fibers::nccl_on_host();
  ncclUniqueId id;
  nccl.get_unique_id(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  expect(nccl.comm_init_rank_config(&comm, ranks, id, rank, &config) == wanted,
         "the result of ncclCommInitRankConfig");
  return comm;
}

void settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) fibers::nccl_on_host().comm_get_async_error(comm, &state);
}

void check_rules(int rank, int ranks) {
  const collectives::NcclLibrary& nccl = fibers::nccl_on_host();
  if (ranks > 1) {
    testing::cuda_stub().bus_id = "the GPU of all ranks";
    raw_communicator(rank, ranks, ncclInvalidUsage);
  }
  testing::cuda_stub().bus_id = "GPU of rank " + std::to_string(rank);
  ncclComm_t comm = raw_communicator(rank, ranks, ncclInProgress);
  std::vector<std::byte> bytes(static_cast<size_t>(ranks));
  const auto gather = [&] {
    return nccl.all_gather(
        &bytes[static_cast<size_t>(rank)], bytes.data(), 1, ncclInt8, comm, nullptr);
  };
  expect(gather() == ncclInvalidUsage, "a call before the one before it is through is refused");
  settle(comm);
  expect(gather() == ncclInProgress, "a call is accepted");
  settle(comm);
  expect(nccl.all_gather(bytes.data() + ranks, bytes.data(), 1, ncclInt8, comm, nullptr) ==
             ncclInvalidArgument,
         "a gather from elsewhere than the own slot is refused");
  expect(nccl.comm_destroy(comm) == ncclInvalidUsage, "a communicator is finalized first");
  nccl.comm_finalize(comm);
  settle(comm);
  expect(nccl.comm_destroy(comm) == ncclSuccess, "it is destroyed");
}

// What NCCL answers with a hang.
void gather_different_bytes(int rank, int ranks) {
  testing::cuda_stub().bus_id = "GPU of rank " + std::to_string(rank);
  ncclComm_t comm = raw_communicator(rank, ranks, ncclInProgress);
  settle(comm);
  const size_t mine = rank == 0 ? 8 : 4;
  std::vector<std::byte> bytes(8 * static_cast<size_t>(ranks));
  std::byte* const slot = bytes.data() + static_cast<size_t>(rank) * mine;
  fibers::nccl_on_host().all_gather(slot, bytes.data(), mine, ncclInt8, comm, nullptr);
}

void run() {
  const auto control = collectives::make_mpi_communicator();
  testing::cuda_stub().bus_id = "GPU of rank " + std::to_string(control->rank());
  const auto communicator = collectives::make_nccl_communicator(
      *control, testing::compute_stream(), collectives::NcclOptions{}, fibers::nccl_on_host());
  for (const size_t bytes : {0, 1, 3, 4097, 1'000'003}) {
    testing::check_bytes(*communicator, bytes);
    testing::check_sums(*communicator, static_cast<int64_t>(bytes / 4));
    communicator->check();
  }
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 1 && std::string(argv[1]) == "differ") {
    lockstep::test::gather_different_bytes(rank, ranks);
  } else {
    lockstep::test::check_rules(rank, ranks);
    lockstep::test::run();
  }
  MPI_Finalize();
  return lockstep::testing::failures == 0 ? 0 : 1;
}
