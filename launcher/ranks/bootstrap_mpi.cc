// MPI is initialised only where a launcher started the process: alone, start-up does not pay for
// it.
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "collectives/agreement.h"
#include "collectives/mpi/mpi_communicator.h"
#include "collectives/tcp/tcp_communicator.h"
#include "collectives/verdict.h"
#include "collectives/watch/recorded_communicator.h"
#include "launcher/ranks/bootstrap.h"
#include "launcher/ranks/mpi_environment.h"
#include "launcher/ranks/mpi_segments.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/metrics/environment.h"
#include "runtime/train/step/stop_signal.h"

namespace lockstep {
namespace {

// TimedWaits up to `limit` for the launcher's SIGTERM, by which it ends all ranks once one has
// failed.
bool launcher_ends_ranks(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!stop_requested()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Of one operation. A bad value counts as none: the launcher need not bring a rank what the user has
// set, and rank 0's is checked where it counts for all (transport.h).
double time_limit_s() {
  TimeLimits limits;
  try {
    read_time_limits([](const char* name) { return std::getenv(name); }, limits);
  } catch (const ConfigError&) {
    return TimeLimits{}.operation_s;
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
    // The loader's thread never calls MPI.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank_);
    MPI_Comm_size(node, &local_ranks_);
    MPI_Comm_free(&node);
    communicator_ = make_mpi_communicator(size_t{1} << 30, limit_s);
    recorded_ = make_recorded(*communicator_);
  }
  ~MpiSession() override {
    tcp_.reset();
    communicator_.reset();
    // It waits for all ranks, and nobody watches them any more.
    std::thread(end_after, std::chrono::seconds(60)).detach();
    MPI_Finalize();
  }
  Communicator& communicator() override { return tcp_ ? *recorded_tcp_ : *recorded_; }
  int local_rank() const override { return local_rank_; }
  int local_ranks() const override { return local_ranks_; }
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string whole(text.data(), static_cast<size_t>(length)),
        version = whole.substr(0, whole.find_first_of(",\n"));
    return tcp_ ? tcp_->library() + ", started by " + version : version;
  }
  MpiNetwork mpi_network() const override { return lockstep::mpi_network(); }
  std::string networks() const override {
    // mpirun --mca btl_tcp_if_include sets it too. On one host no network is needed.
    const char* const named = std::getenv("OMPI_MCA_btl_tcp_if_include");
    return named != nullptr && local_ranks_ < communicator_->size() ? named : "";
  }
  void move_to_tcp(const TimeLimits& limits) override {
    TcpOptions options;
    options.rank = communicator_->rank();
    options.size = communicator_->size();
    options.local_size = local_ranks_;
    options.networks = networks();
    options.version = lockstep_version();
    options.limits = limits;
    tcp_ = make_tcp_communicator_over(*communicator_, options);
    recorded_tcp_ = make_recorded(*tcp_);
  }
  void await_turn_to_tell(const std::string& error) override {
    constexpr std::chrono::seconds kPatience(10);
    if (tcp_) tcp_->tell_failure(error);
    // A verdict all ranks know, and the rank that it names may be the one below this one.
    const bool another = (tcp_ && !has_verdict() && tcp_->another_tells()) ||
                         !FlightRecorder::here().claim_last_word();
    if (another && launcher_ends_ranks(kPatience)) std::_Exit(static_cast<int>(ExitCode::kPeer));
  }
  [[noreturn]] void abort(int code, const std::string& why) override {
    if (tcp_) tcp_->abort(last_words(code, why));
    FlightRecorder::here().claim_last_word();  // the user has been told
    // The rank which failed first gives the launcher its exit code, if that notices it itself.
    constexpr std::chrono::seconds kPatience(3);
    // Of one that is only stuck it notices nothing.
    if (code == static_cast<int>(ExitCode::kPeer) && !has_verdict() &&
        launcher_ends_ranks(kPatience))
      std::_Exit(code);
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<Communicator> communicator_;  // MPI's
  std::unique_ptr<TcpCommunicator> tcp_;        // where the ranks have moved to it
  std::unique_ptr<Communicator> recorded_, recorded_tcp_;
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
