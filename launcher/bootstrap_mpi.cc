// MPI is initialised only where a launcher started the process: alone, start-up does not pay for
// it.
#include <mpi.h>

#include <array>
#include <cstdlib>

#include "collectives/mpi/mpi_communicator.h"
#include "launcher/bootstrap.h"
#include "launcher/mpi_environment.h"

namespace lockstep {
namespace {

class MpiSession final : public Session {
 public:
  MpiSession() {
    prepare_mpi_environment();
    // The loader's thread never calls MPI.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank_);
    MPI_Comm_size(node, &local_ranks_);
    MPI_Comm_free(&node);
    communicator_ = make_mpi_communicator();
  }
  ~MpiSession() override {
    communicator_.reset();
    MPI_Finalize();
  }
  Communicator& communicator() override { return *communicator_; }
  int local_rank() const override { return local_rank_; }
  int local_ranks() const override { return local_ranks_; }
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data(), static_cast<size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
  }
  [[noreturn]] void abort(int code, const std::string&) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<Communicator> communicator_;
  int local_rank_ = 0;
  int local_ranks_ = 1;
};

}  // namespace

bool started_by_mpi_launcher() {
  // Variables that Open MPI's mpirun, MPICH's mpiexec (PMI) and srun (PMI2, PMIx) set for their
  // processes.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<Session> join_mpi_run() { return std::make_unique<MpiSession>(); }

}  // namespace lockstep
