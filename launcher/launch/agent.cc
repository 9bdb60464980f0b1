#include "launcher/launch/agent.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <vector>

#include "collectives/tcp/socket.h"
#include "launcher/launch/child.h"
#include "launcher/launch/messages.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

constexpr double kBeatMs = 2000;
constexpr double kDrainMs = 500;  // what a rank's own children may still write after its end
// By which other launchers speak to their processes, such as one that has started `launch`.
const std::vector<std::string> kForeignVariables = {"OMPI_COMM_WORLD_SIZE",
                                                    "OMPI_COMM_WORLD_RANK",
                                                    "PMI_RANK",
                                                    "PMI_SIZE",
                                                    "PMIX_RANK",
                                                    "SLURM_STEP_ID",
                                                    "SLURM_PROCID",
                                                    "SLURM_LOCALID",
                                                    "LOCKSTEP_RENDEZVOUS",
                                                    "TORCHELASTIC_USE_AGENT_STORE",
                                                    "TORCHELASTIC_RUN_ID",
                                                    "TORCHELASTIC_RESTART_COUNT"};

// A descriptor by which SIGCHLD is read. Signals that whoever started `launch` may send to all its
// processes are ignored: `launch` says what is to be done.
int take_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) ::signal(number, SIG_IGN);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

class Agent {
 public:
  Agent() : signals_(take_signals()), input_(dup(STDIN_FILENO)), output_(dup(STDOUT_FILENO)) {
    if (signals_.fd < 0) throw IoError("open", "a descriptor of signals", errno);
  }

  int run() {
    const int port = port_of(listen_on(0));
    say({MessageKind::kHello, -1, 0, Json::object({{"host", host_name()}, {"port", port}}).dump()});
    while (!ordered_ || !ranks_.empty()) {
      wait();
      read_orders();
      if (!input_.is_open() || !output_.is_open()) {
        signal_all(SIGKILL);
        return 1;
      }
      for (Rank& rank : ranks_) pass_output(rank);
      reap();
      if (now_ms() - last_beat_ms_ > kBeatMs) say({});
    }
    return 0;
  }

 private:
  struct Rank {
    int rank = 0;
    Child child;
    std::optional<int> code;  // once it has ended
    double ended_ms = 0;
  };

  void wait() {
    std::vector<pollfd> entries = {{input_.descriptor(), POLLIN, 0}, {signals_.fd, POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      for (const Pipe* pipe : {&rank.child.output, &rank.child.errors})
        if (pipe->is_open()) entries.push_back({pipe->descriptor(), POLLIN, 0});
    }
    constexpr int kPollMs = 200;
    poll(entries.data(), entries.size(), kPollMs);
    signalfd_siginfo ignored{};
    while (::read(signals_.fd, &ignored, sizeof(ignored)) > 0) {
    }
    readable_ = (entries[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
  }

  void read_orders() {
    if (!readable_) return;
    orders_.add(input_.read());
    while (const std::optional<Message> message = orders_.next()) {
      if (message->kind == MessageKind::kSignal) signal_all(message->value);
      if (message->kind == MessageKind::kStart) start(start_order_from(message->text));
    }
  }

  void start(const StartOrder& order) {
    ordered_ = true;
    std::filesystem::current_path(order.folder);
    for (const StartOrder::Rank& rank : order.ranks) {
      ranks_.push_back(
          {rank.rank,
           start_child({.words = order.words, .set = rank.variables, .unset = kForeignVariables}),
           std::nullopt});
      say({MessageKind::kBegun, rank.rank, ranks_.back().child.process, ""});
    }
  }

  void signal_all(int number) {
    for (const Rank& rank : ranks_) {
      if (rank.code) continue;
      // What a rank has started gets only what nobody survives.
      kill(number == SIGKILL ? -rank.child.process : rank.child.process, number);
    }
  }

  void pass_output(Rank& rank) {
    int stream = 1;
    for (Pipe* pipe : {&rank.child.output, &rank.child.errors}) {
      while (pipe->is_open()) {
        const std::string bytes = pipe->read();
        if (bytes.empty()) break;
        say({MessageKind::kOutput, rank.rank, stream, bytes});
      }
      ++stream;
    }
  }

  // Tells of ranks that have ended, once all that they have written is passed on.
  void reap() {
    for (size_t i = 0; i < ranks_.size();) {
      Rank& rank = ranks_[i];
      siginfo_t ended{};
      if (!rank.code &&
          waitid(
              P_PID, static_cast<id_t>(rank.child.process), &ended, WEXITED | WNOHANG | WNOWAIT) ==
              0 &&
          ended.si_pid == rank.child.process) {
        kill(-rank.child.process, SIGKILL);  // what it has left behind, while the number is its own
        int status = 0;
        waitpid(rank.child.process, &status, 0);
        rank.code = code_of(status);
        rank.ended_ms = now_ms();
      }
      const bool open = rank.child.output.is_open() || rank.child.errors.is_open();
      if (!rank.code || (open && now_ms() - rank.ended_ms < kDrainMs)) {
        ++i;
        continue;
      }
      pass_output(rank);
      say({MessageKind::kEnded, rank.rank, *rank.code, ""});
      ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void say(const Message& message) {
    output_.write(encode(message));
    last_beat_ms_ = now_ms();
  }

  Descriptor signals_;
  Pipe input_, output_;
  MessageReader orders_;
  std::vector<Rank> ranks_;
  bool ordered_ = false, readable_ = false;
  double last_beat_ms_ = 0;
};

}  // namespace

int run_agent() { return Agent().run(); }

}  // namespace lockstep::launch
