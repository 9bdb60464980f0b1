// MPI is initialised only if a launcher has started the process, so that a single process starts
// faster.
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "collectives/agree/watchdog_error.h"
#include "collectives/mpi/mpi_communicator.h"
#include "collectives/tcp/tcp_communicator.h"
#include "collectives/watch/recorded_communicator.h"
#include "launcher/ranks/bootstrap.h"
#include "launcher/ranks/mpi_environment.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/metrics/environment.h"
#include "runtime/train/step/stop_signal.h"

namespace lockstep::launcher {
namespace {

// Waits up to `limit` for the launcher's SIGTERM, with which it ends all ranks once one has failed.
bool launcher_ends_ranks(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!train::stop_requested()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// The time limit of an operation. An invalid value counts as none: the launcher need not pass the
// user's variables on to this rank, and rank 0's value, which counts for all, is checked in
// transport.h.
double time_limit_s() {
  collectives::TimeLimits limits;
  try {
    collectives::read_time_limits([](const char* name) { return std::getenv(name); }, limits);
  } catch (const ConfigError&) {
    return collectives::TimeLimits{}.operation_s;
  }
  return limits.operation_s;
}

void end_after(std::chrono::seconds limit) {
  std::this_thread::sleep_for(limit);
  print_log(
      fmt::format("lockstep: error: the other ranks have not ended within {} s\n", limit.count()));
  end_log();
  std::_Exit(static_cast<int>(ExitCode::kPeer));
}

class MpiSession final : public Session {
 public:
  MpiSession() {
    const double limit_s = time_limit_s();
    prepare_mpi_environment();
    prepare_mpi_segments();
    // The data loader's thread never calls MPI.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank_);
    MPI_Comm_size(node, &local_ranks_);
    MPI_Comm_free(&node);
    communicator_ = collectives::make_mpi_communicator(size_t{1} << 30, limit_s);
    recorded_ = collectives::make_recorded(*communicator_);
  }
  ~MpiSession() override {
    tcp_.reset();
    communicator_.reset();
    // MPI_Finalize waits for all ranks, and nothing watches them any more.
    std::thread(end_after, std::chrono::seconds(60)).detach();
    MPI_Finalize();
  }
  collectives::Communicator& communicator() override { return tcp_ ? *recorded_tcp_ : *recorded_; }
  int local_rank() const override { return local_rank_; }
  int local_ranks() const override { return local_ranks_; }
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string full(text.data(), static_cast<size_t>(length)),
        version = full.substr(0, full.find_first_of(",\n"));
    return tcp_ ? tcp_->library() + ", started by " + version : version;
  }
  collectives::MpiNetwork mpi_network() const override {
    return lockstep::collectives::mpi_network();
  }
  std::string networks() const override {
    // mpirun --mca btl_tcp_if_include sets it too. On a single host no network is needed.
    const char* const named = std::getenv("OMPI_MCA_btl_tcp_if_include");
    return named != nullptr && local_ranks_ < communicator_->size() ? named : "";
  }
  void move_to_tcp(const collectives::TimeLimits& limits) override {
    collectives::TcpOptions options;
    options.rank = communicator_->rank();
    options.size = communicator_->size();
    options.local_size = local_ranks_;
    options.networks = networks();
    options.version = metrics::lockstep_version();
    options.limits = limits;
    tcp_ = collectives::make_tcp_communicator_over(*communicator_, options);
    recorded_tcp_ = collectives::make_recorded(*tcp_);
  }
  void await_turn_to_report(const std::string& error) override {
    constexpr std::chrono::seconds kPatience(10);
    if (tcp_) tcp_->report_failure(error);
    // A lower rank usually reports. Not for the watchdog's error: all ranks know it, and the lower
    // rank may be the one that hangs.
    const bool another =
        (tcp_ && !collectives::has_watchdog_error() && tcp_->another_rank_reports()) ||
        !FlightRecorder::here().claim_report();
    if (another && launcher_ends_ranks(kPatience)) std::_Exit(static_cast<int>(ExitCode::kPeer));
  }
  [[noreturn]] void abort(int code, const std::string& why) override {
    if (tcp_) tcp_->abort(exit_message(code, why));
    FlightRecorder::here().claim_report();  // it has been reported to the user
    // The rank that failed first determines the launcher's exit code, if the launcher notices the
    // failure itself.
    constexpr std::chrono::seconds kPatience(3);
    // The launcher does not notice a rank that only hangs.
    if (code == static_cast<int>(ExitCode::kPeer) && !collectives::has_watchdog_error() &&
        launcher_ends_ranks(kPatience))
      std::_Exit(code);
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<collectives::Communicator> communicator_;  // over MPI
  std::unique_ptr<collectives::TcpCommunicator> tcp_;        // set if the ranks have moved to TCP
  std::unique_ptr<collectives::Communicator> recorded_, recorded_tcp_;
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

}  // namespace lockstep::launcher
