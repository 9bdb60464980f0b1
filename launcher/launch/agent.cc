#include "launcher/launch/agent.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/tcp/socket.h"
#include "launcher/command_line/handed_config.h"
#include "launcher/launch/messages.h"
#include "launcher/launch/program.h"
#include "launcher/processes/child.h"
#include "launcher/processes/process_state.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"
#include "runtime/base/stop_signals.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

constexpr double kBeatMs = 2000;
constexpr double kDrainMs = 500;        // for what a rank's own children still write after its end
constexpr int kLastReads = 64;          // of 64 KiB: more than a pipe holds
constexpr double kUnkillableMs = 5000;  // after SIGKILL: freeing much memory takes a moment
constexpr double kFlushMs = 2000;       // for output that `launch` has not read yet
constexpr size_t kMaxUnread = 1 << 20;  // beyond that the ranks' output is not read
// Variables by which other launchers address their processes; one of them may have started
// `launch`.
const std::vector<std::string> kForeignVariables = words_of(
    "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_RANK PMI_SIZE PMIX_RANK SLURM_STEP_ID "
    "SLURM_PROCID SLURM_LOCALID LOCKSTEP_RENDEZVOUS LOCKSTEP_TOKEN_FILE "
    "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT");

// Opens a descriptor that delivers SIGCHLD. Ignores the stop signals, which the parent of `launch`
// may send to all its processes: only `launch` decides what to do.
int take_signals() {
  for (const int number : stop_signals()) ::signal(number, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Duplicates a descriptor so that children do not inherit it: a rank that cannot be killed would
// keep the connection open.
launcher::Pipe own_copy(int descriptor) {
  return launcher::Pipe(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

// The given-up processes that still exist, with their states.
std::string unkillable_text(const std::string& given_up) {
  std::string text;
  for (const launcher::GivenUp& process : launcher::given_up_from(given_up)) {
    if (!launcher::is_there(process)) continue;
    append_item(
        text,
        fmt::format("process {}: {}", process.process, launcher::state_text(process.process)),
        "; ");
  }
  return text;
}

class Agent {
 public:
  Agent()
      : signals_(take_signals()), input_(own_copy(STDIN_FILENO)), output_(own_copy(STDOUT_FILENO)) {
    if (signals_.fd < 0) throw IoError("open", "a descriptor of signals", errno);
    fcntl(output_.descriptor(), F_SETFL, fcntl(output_.descriptor(), F_GETFL) | O_NONBLOCK);
  }

  int run(const std::string& given_up) {
    const int port = collectives::port_of(collectives::listen_on(0));
    const Json hello = Json::object({{"host", host_name()},
                                     {"port", port},
                                     {"build", running_build()},
                                     {"undead", unkillable_text(given_up)}});
    send({MessageKind::kHello, -1, 0, hello.dump()});
    while (!ordered_ || !ranks_.empty()) {
      wait();
      read_orders();
      if (!input_.is_open() || !output_.is_open() || launch_is_silent()) {
        signal_all(SIGKILL);
        return 1;
      }
      for (Rank& rank : ranks_) pass_output(rank);
      reap();
      report_unkillable();
      if (now_ms() - last_look_ms_ > kBeatMs) kill_blocked();
      if (now_ms() - last_beat_ms_ > kBeatMs) send({});
    }
    const double end_ms = now_ms() + kFlushMs;
    while (output_.unwritten() > 0 && now_ms() < end_ms) wait();
    return 0;
  }

 private:
  struct Rank {
    int rank = 0;
    launcher::Child child;
    std::optional<int> code;  // set once it has ended
    double ended_ms = 0;
    double killed_ms = 0;  // 0: SIGKILL was not sent
    bool unkillable = false;
    std::optional<uint64_t> ticks = std::nullopt;  // CPU ticks while a thread is in state D,
    double still_ms = 0;                           // and since when they are unchanged
  };

  void wait() {
    std::vector<pollfd> entries = {{input_.descriptor(), POLLIN, 0}, {signals_.fd, POLLIN, 0}};
    if (output_.unwritten() > 0) entries.push_back({output_.descriptor(), POLLOUT, 0});
    for (const Rank& rank : ranks_) {
      if (output_.unwritten() > kMaxUnread) break;
      for (const launcher::Pipe* pipe : {&rank.child.output, &rank.child.errors})
        if (pipe->is_open()) entries.push_back({pipe->descriptor(), POLLIN, 0});
    }
    constexpr int kPollMs = 200;
    poll(entries.data(), entries.size(), kPollMs);
    signalfd_siginfo ignored{};
    while (::read(signals_.fd, &ignored, sizeof(ignored)) > 0) {
    }
    output_.flush();
    readable_ = (entries[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
  }

  void read_orders() {
    if (!readable_) return;
    last_read_ms_ = now_ms();
    orders_.add(input_.read());
    while (const std::optional<Message> message = orders_.next()) {
      if (message->kind == MessageKind::kSignal) signal_all(message->value);
      if (message->kind == MessageKind::kConfig)
        config_ = launcher::config_in_memory(message->text);
      if (message->kind == MessageKind::kStart) start(start_order_from(message->text));
    }
  }

  void start(const StartOrder& order) {
    ordered_ = true;
    silence_ms_ = order.silence_s * 1000;
    blocked_ms_ = order.blocked_s * 1000;
    std::filesystem::current_path(order.folder);
    for (const StartOrder::Rank& rank : order.ranks) {
      std::vector<std::string> variables = rank.variables;
      if (config_) variables.push_back(launcher::config_variable(*config_));
      ranks_.push_back({rank.rank,
                        launcher::start_child(
                            {.words = order.words, .set = variables, .unset = kForeignVariables}),
                        std::nullopt});
      send({MessageKind::kBegun, rank.rank, ranks_.back().child.process, ""});
    }
  }

  // Notices a network that is down between the hosts; neither end of a connection reports that.
  bool launch_is_silent() const {
    return silence_ms_ > 0 && now_ms() - last_read_ms_ > silence_ms_;
  }

  void signal_all(int number) {
    for (Rank& rank : ranks_) {
      if (rank.code) continue;
      if (number == SIGKILL)
        kill_rank(rank);
      else
        kill(rank.child.process, number);
    }
  }

  // Kills the rank and the processes that it has started.
  static void kill_rank(Rank& rank) {
    if (rank.killed_ms == 0) rank.killed_ms = now_ms();
    kill(-rank.child.process, SIGKILL);
  }

  // On a file system that has stopped answering, all ranks may hang, together with their watchdogs.
  void kill_blocked() {
    last_look_ms_ = now_ms();
    for (Rank& rank : ranks_) {
      if (rank.code || rank.killed_ms > 0 || blocked_ms_ == 0) continue;
      const std::optional<uint64_t> ticks = launcher::ticks_if_blocked(rank.child.process);
      if (!ticks || ticks != std::exchange(rank.ticks, ticks)) rank.still_ms = now_ms();
      if (now_ms() - rank.still_ms > blocked_ms_) kill_rank(rank);
    }
  }

  // Passes on output. Each pipe is read at most `reads` times, so that a rank that writes without
  // end does not delay others.
  void pass_output(Rank& rank, int reads = 1) {
    int stream = 1;
    for (launcher::Pipe* pipe : {&rank.child.output, &rank.child.errors}) {
      for (int i = 0; i < reads && pipe->is_open() && output_.unwritten() <= kMaxUnread; ++i) {
        const std::string bytes = pipe->read();
        if (bytes.empty()) break;
        send({MessageKind::kOutput, rank.rank, stream, bytes});
      }
      ++stream;
    }
  }

  // Reports ranks that have ended, once all their output is passed on.
  void reap() {
    for (size_t i = 0; i < ranks_.size();) {
      Rank& rank = ranks_[i];
      siginfo_t ended{};
      if (!rank.code &&
          waitid(
              P_PID, static_cast<id_t>(rank.child.process), &ended, WEXITED | WNOHANG | WNOWAIT) ==
              0 &&
          ended.si_pid == rank.child.process) {
        kill(-rank.child.process, SIGKILL);  // its children; the group's id cannot be reused yet
        int status = 0;
        waitpid(rank.child.process, &status, 0);
        rank.code = launcher::code_of(status);
        rank.ended_ms = now_ms();
      }
      const bool open = rank.child.output.is_open() || rank.child.errors.is_open();
      const bool drains = now_ms() - rank.ended_ms < kDrainMs || output_.unwritten() > kMaxUnread;
      if (!rank.code || (open && drains)) {
        ++i;
        continue;
      }
      pass_output(rank, kLastReads);
      send({MessageKind::kEnded, rank.rank, *rank.code, ""});
      ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Reports ranks that SIGKILL does not end, because they are inside the kernel or frozen.
  void report_unkillable() {
    for (Rank& rank : ranks_) {
      const double since_ms = rank.killed_ms;
      if (rank.code || rank.unkillable || since_ms == 0 || now_ms() - since_ms < kUnkillableMs)
        continue;
      rank.unkillable = true;
      const pid_t process = rank.child.process;
      const Json json = Json::object({{"state", launcher::state_text(process)},
                                      {"started", launcher::given_up_now(process).start_ticks}});
      send({MessageKind::kUnkillable, rank.rank, process, json.dump()});
    }
  }

  void send(const Message& message) {
    output_.write(encode(message));
    last_beat_ms_ = now_ms();
  }

  Descriptor signals_;
  launcher::Pipe input_, output_;
  MessageReader orders_;
  std::vector<Rank> ranks_;
  std::unique_ptr<Descriptor> config_;
  bool ordered_ = false, readable_ = false;
  double last_beat_ms_ = 0, last_look_ms_ = 0;
  double last_read_ms_ = now_ms(), silence_ms_ = 0, blocked_ms_ = 0;
};

}  // namespace

int run_agent(const std::string& given_up) { return Agent().run(given_up); }

}  // namespace lockstep::launch
