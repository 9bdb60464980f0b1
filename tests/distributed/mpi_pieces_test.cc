// Catches: messages of more bytes than MPI can count that are cut wrongly, shown on small ones. Run
// under mpirun.
#include <mpi.h>

#include "collectives/mpi/mpi_communicator.h"
#include "tests/distributed/communicator_checks.h"

namespace lockstep::test {
namespace {

void run() {
  constexpr size_t kPiece = 1000;
  const auto communicator = collectives::make_mpi_communicator(kPiece);
  for (const size_t bytes : {0, 1, 999, 1000, 1001, 2000, 4097, 100'003}) {
    testing::check_bytes(*communicator, bytes);
    testing::check_sums(*communicator, static_cast<int64_t>(bytes / 4));
  }
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lockstep::test::run();
  MPI_Finalize();
  return lockstep::testing::failures == 0 ? 0 : 1;
}
