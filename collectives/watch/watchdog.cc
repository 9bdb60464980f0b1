#include "collectives/watch/watchdog.h"

#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collectives/watch/verdict.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

std::atomic<const std::string*> verdict{nullptr};

int stack_signal() { return SIGRTMIN + 2; }

// Only what may be called in a signal's handler.
void print_stack(int) {
  std::array<void*, 64> frames;
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), depth, STDERR_FILENO);
}

}  // namespace

void set_verdict(const std::string& text) {
  const std::string* none = nullptr;
  auto mine = std::make_unique<const std::string>(text);
  if (verdict.compare_exchange_strong(none, mine.get())) mine.release();  // it stays
}

bool has_verdict() { return verdict.load(std::memory_order_acquire) != nullptr; }

void check_verdict() {
  const std::string* const text = verdict.load(std::memory_order_acquire);
  if (text != nullptr) throw CommError("{}", *text);
}

class Watchdog::Watch {
 public:
  explicit Watch(WatchdogOptions options)
      : options_(std::move(options)),
        tick_ms_(std::clamp(options_.timeout_s * 1000 / 40, 5.0, 100.0)),
        main_(::pthread_self()) {
    void* first = nullptr;
    ::backtrace(&first, 1);  // loads what it needs now, not in the handler
    std::signal(stack_signal(), print_stack);
    for (const int rank : options_.ranks_here) peers_.push_back({.rank = rank});
    thread_ = std::thread([this] { run(); });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  struct Peer {
    int rank = 0;
    std::unique_ptr<FlightReader> reader;
    FlightMoment moment;
    double still_since_ms = 0;   // no sign of work
    double silent_since_ms = 0;  // its watchdog stands still too: the process is stopped

    double still_s() const { return (now_ms() - still_since_ms) / 1000; }
    double silent_s() const { return (now_ms() - silent_since_ms) / 1000; }
  };

  void run() {
    double last_ms = now_ms();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(
        lock, std::chrono::duration<double, std::milli>(tick_ms_), [this] { return ended_; })) {
      // A process, or a machine, that has slept has not watched.
      const bool slept = now_ms() - last_ms > 10 * tick_ms_ + 1000;
      last_ms = now_ms();
      FlightRecorder::here().keep_alive();
      for (Peer& peer : peers_) look_at(peer, slept);
      if (!judged_) judge();
      if (judged_) carry_out();
    }
  }

  void look_at(Peer& peer, bool slept) const {
    if (peer.reader == nullptr)
      peer.reader = FlightReader::open(flight_path(options_.folder, peer.rank));
    if (peer.reader == nullptr) return;
    const FlightMoment moment = peer.reader->now();
    if (slept || peer.still_since_ms == 0 || moment.beats != peer.moment.beats)
      peer.still_since_ms = now_ms();
    if (slept || peer.silent_since_ms == 0 || moment.alive != peer.moment.alive)
      peer.silent_since_ms = now_ms();
    peer.moment = moment;
  }

  double limit_s(const Peer& peer) const {
    switch (peer.moment.phase) {
      case FlightPhase::kSetup:
      case FlightPhase::kSaving:
      case FlightPhase::kLoading: return options_.files_timeout_s;
      default: return options_.timeout_s;
    }
  }

  bool stands_still(const Peer& peer) const {
    return peer.reader != nullptr && peer.moment.phase != FlightPhase::kEnded &&
           peer.still_s() > limit_s(peer);
  }

  static std::string name_of(const Peer& peer) {
    return fmt::format(
        "rank {} on {} (process {})", peer.rank, peer.moment.host, peer.moment.process);
  }

  // A peer whose process is gone, as it was killed: MPI's own waits would go on for ever.
  static bool has_died(const Peer& peer) {
    return peer.reader != nullptr && peer.moment.phase != FlightPhase::kEnded &&
           ::kill(static_cast<pid_t>(peer.moment.process), 0) != 0 && errno == ESRCH;
  }

  void judge() {
    const auto dead = std::find_if(peers_.begin(), peers_.end(), has_died);
    if (dead != peers_.end()) {
      decide(dead->rank,
             fmt::format("lost rank {} on {}: its process has ended; it was at {}",
                         dead->rank,
                         dead->moment.host,
                         text_of(dead->moment)));
      return;
    }
    // Who waits has a reason, unless its process is stopped.
    const auto stuck = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return stands_still(peer) && (!peer.moment.waiting || peer.silent_s() > limit_s(peer));
    });
    if (stuck != peers_.end()) {
      decide(stuck->rank,
             fmt::format("{} has done nothing for {:.3g} s: {}",
                         name_of(*stuck),
                         stuck->still_s(),
                         text_of(stuck->moment)));
      return;
    }
    // One that is about to be found stopped is the reason why the others wait.
    const bool all_wait =
        options_.all_here && peers_.size() > 1 &&
        std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
          return stands_still(peer) && peer.moment.waiting && peer.silent_s() < limit_s(peer) / 2;
        });
    if (all_wait) decide(-1, difference());
  }

  // What the ranks wait for, where all of them do.
  std::string difference() const {
    std::string text;
    bool same = true;
    const FlightEntry first = peers_[0].moment.last.value_or(FlightEntry{});
    for (const Peer& peer : peers_) {
      const FlightEntry last = peer.moment.last.value_or(FlightEntry{});
      same = same && last.collective == first.collective && last.op == first.op &&
             last.bytes == first.bytes;
      text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", name_of(peer), text_of(last));
    }
    return fmt::format("all ranks have waited for {:.3g} s, {}: {}",
                       peers_[0].still_s(),
                       same ? "though for the same" : "for different things",
                       text);
  }

  void decide(int stuck, const std::string& text) {
    judged_ = true;
    stuck_ = stuck;
    text_ = text;
    judged_at_ms_ = now_ms();
  }

  // Who waits throws it. A rank that does not, since it is stuck itself or a library does not come
  // back, is ended here.
  void carry_out() {
    constexpr double kTurnMs = 2000;
    const double since_ms = now_ms() - judged_at_ms_;
    if (stuck_ != options_.rank) set_verdict(text_);
    if (stuck_ == options_.rank) {
      if (!stack_told_) {
        stack_told_ = true;
        std::fprintf(stderr, "rank %d: where its main thread is:\n", options_.rank);
        ::pthread_kill(main_, stack_signal());
      }
    }
    if (since_ms < (stuck_ == options_.rank ? 2 * kTurnMs : kTurnMs)) return;
    if (FlightRecorder::here().claim_last_word()) {
      log_record("error: " + text_);
      std::fprintf(stderr, "lockstep: rank %d: error: %s\n", options_.rank, text_.c_str());
    } else if (since_ms < 4 * kTurnMs) {
      return;  // it is being told, by this rank or another
    }
    std::_Exit(static_cast<int>(ExitCode::kPeer));
  }

  WatchdogOptions options_;
  double tick_ms_;
  pthread_t main_;
  std::vector<Peer> peers_;
  bool judged_ = false, stack_told_ = false;
  int stuck_ = -1;
  std::string text_;
  double judged_at_ms_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

Watchdog::Watchdog(WatchdogOptions options) : watch_(std::make_unique<Watch>(std::move(options))) {}
Watchdog::~Watchdog() = default;

}  // namespace lockstep
