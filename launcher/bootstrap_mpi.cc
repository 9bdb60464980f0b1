// MPI is initialised only where a launcher started the process: alone, start-up does not pay for
// it.
#include <mpi.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "collectives/mpi/mpi_communicator.h"
#include "launcher/mpi_environment.h"
#include "launcher/session.h"
#include "runtime/base/error.h"

namespace lockstep {
namespace {

bool in_environment(const char* name) { return std::getenv(name) != nullptr; }

// Variables that Open MPI's mpirun, MPICH's mpiexec (PMI) and srun (PMI2, PMIx) set for their
// processes.
bool started_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
    if (in_environment(name)) return true;
  }
  return false;
}

// Processes that mpirun or mpiexec says it started; 1 where it says nothing.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (in_environment(name)) return std::atoi(std::getenv(name));
  }
  return 1;
}

// Tasks of the Slurm step that this process belongs to; 1 outside srun.
int slurm_tasks() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks == nullptr || !in_environment("SLURM_STEP_ID") || !in_environment("SLURM_LOCALID")
             ? 1
             : std::atoi(tasks);
}

class SelfSession final : public Session {
 public:
  Communicator& communicator() override { return *communicator_; }
  int local_ranks() const override { return 1; }
  std::string library() const override { return ""; }
  [[noreturn]] void abort(int code) override { std::_Exit(code); }

 private:
  std::unique_ptr<Communicator> communicator_ = make_self_communicator();
};

class MpiSession final : public Session {
 public:
  MpiSession() {
    prepare_mpi_environment();
    // The loader's thread never calls MPI.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local_ranks_);
    MPI_Comm_free(&node);
    communicator_ = make_mpi_communicator();
  }
  ~MpiSession() override {
    communicator_.reset();
    MPI_Finalize();
  }
  Communicator& communicator() override { return *communicator_; }
  int local_ranks() const override { return local_ranks_; }
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data(), static_cast<size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
  }
  [[noreturn]] void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<Communicator> communicator_;
  int local_ranks_ = 1;
};

}  // namespace

std::unique_ptr<Session> join_run() {
  const int tasks = slurm_tasks();
  std::unique_ptr<Session> session;
  if (started_by_launcher()) {
    session = std::make_unique<MpiSession>();
  } else {
    session = std::make_unique<SelfSession>();
  }
  if (tasks > 1 && session->communicator().size() == 1)
    throw ConfigError(
        "srun started {} tasks that MPI does not see as one run; use srun --mpi=pmix (or pmi2, as "
        "`srun --mpi=list` offers), "
        "or start mpirun within the allocation",
        tasks);
  if (launched_processes() > 1 && session->communicator().size() == 1)
    throw ConfigError(
        "mpirun started {} processes that do not find each other: it belongs to another MPI than "
        "this program, which uses {}; start it with that one's mpirun",
        launched_processes(),
        session->library());
  return session;
}

}  // namespace lockstep
