#include "launcher/ranks/bootstrap.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"

namespace lockstep::launcher {
namespace {

class SelfSession final : public Session {
 public:
  explicit SelfSession(const std::string& why_apart = "") : why_apart_(why_apart) {}
  collectives::Communicator& communicator() override { return *communicator_; }
  int local_rank() const override { return 0; }
  int local_ranks() const override { return 1; }
  std::string library() const override { return ""; }
  std::string why_apart() const override { return why_apart_; }
  [[noreturn]] void abort(int code, const std::string&) override { std::_Exit(code); }

 private:
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::make_self_communicator();
  std::string why_apart_;
};

constexpr std::string_view kEndedWith = "it ended with exit code ";

bool in_environment(const char* name) { return std::getenv(name) != nullptr; }

// The number of processes that mpirun or mpiexec has started; 1 if unknown.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (in_environment(name)) return std::atoi(std::getenv(name));
  }
  return 1;
}

// The number of tasks in the Slurm step of this process; 1 outside srun.
int slurm_tasks() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks == nullptr || !in_environment("SLURM_STEP_ID") || !in_environment("SLURM_LOCALID")
             ? 1
             : std::atoi(tasks);
}

}  // namespace

std::string exit_message(int code, const std::string& why) {
  // Each rank that receives the text forwards it to those that have not.
  constexpr size_t kLongest = 400;
  return fmt::format("{}{}: {}", kEndedWith, code, why.substr(0, kLongest));
}

std::optional<ExitCode> reported_exit_code(const std::string& error) {
  const size_t at = error.find(kEndedWith);
  int code = 0;
  if (at == std::string::npos) return std::nullopt;
  std::from_chars(error.data() + at + kEndedWith.size(), error.data() + error.size(), code);
  return code == 0 ? std::nullopt : std::optional(static_cast<ExitCode>(code));
}

std::unique_ptr<Session> session_apart(const std::string& why) {
  return std::make_unique<SelfSession>(why);
}

std::unique_ptr<Session> join_run() {
  const auto environment = [](const char* name) { return std::getenv(name); };
  std::unique_ptr<Session> session;
  if (started_by_mpi_launcher()) session = join_mpi_run();
  const bool several = session && session->communicator().size() > 1;
  if (!several && (!session || slurm_tasks() > 1)) {
    // If srun uses a protocol that this MPI does not support, every process is an MPI job of one
    // rank.
    if (std::optional<collectives::TcpOptions> options = collectives::tcp_options_from(environment))
      session = join_tcp_run(std::move(*options));
  }
  if (!session) session = std::make_unique<SelfSession>();
  if (slurm_tasks() > 1 && session->communicator().size() == 1)
    throw ConfigError(
        "srun started {} tasks that MPI does not see as one run; use srun --mpi=pmix (or pmi2, as "
        "`srun --mpi=list` offers), start mpirun within the allocation, or do without MPI: set "
        "MASTER_ADDR and MASTER_PORT, or LOCKSTEP_RENDEZVOUS=file:///shared/path",
        slurm_tasks());
  if (launched_processes() > 1 && session->communicator().size() == 1)
    throw ConfigError(
        "mpirun started {} processes that do not find each other: it belongs to another MPI than "
        "this program, which uses {}; use the mpirun of that MPI",
        launched_processes(),
        session->library());
  return session;
}

}  // namespace lockstep::launcher
