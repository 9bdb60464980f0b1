#include "collectives/watch/watchdog.h"

#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collectives/verdict.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

constexpr double kPartS = 0.5;  // to say goodbye
// Before a watchdog tells the user itself.
constexpr double kTurnMs = 2000, kTurnOfLostMs = 400;

int stack_signal() { return SIGRTMIN + 2; }

// Only what may be called in a signal's handler.
void print_stack(int) {
  std::array<void*, 64> frames;
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), depth, STDERR_FILENO);
}

}  // namespace

class Watchdog::Watch {
 public:
  explicit Watch(WatchdogOptions options)
      : options_(std::move(options)),
        tick_ms_(std::clamp(options_.timeout_s * 1000 / 40, 5.0, 100.0)),
        main_(::pthread_self()) {
    void* first = nullptr;
    ::backtrace(&first, 1);  // loads what it needs now, not in the handler
    std::signal(stack_signal(), print_stack);
    const std::vector<RankPlace>& places = options_.places;
    peers_.reserve(places.size());
    for (size_t rank = 0; rank < places.size(); ++rank) {
      if (places[rank].machine == places[static_cast<size_t>(options_.rank)].machine)
        add({.moment = first_moment(static_cast<int>(rank), places[rank])});
    }
    own_ = &*std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return peer.rank() == options_.rank;
    });
    FlightRecorder::here().keep_alive();  // before this rank waits for another
    thread_ = std::thread([this] { run(); });
  }
  ~Watch() {
    FlightRecorder::here().leave();
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void listen_to(std::vector<std::unique_ptr<HostLink>> links) {
    const std::lock_guard lock(mutex_);
    links_ = std::move(links);
    for (const auto& link : links_) {
      for (size_t i = 0; i < link->ranks().size(); ++i)
        add({.link = link.get(), .place = i, .moment = link->ranks()[i]});
      if (finding_) link->tell(*finding_);
    }
  }

 private:
  struct Peer {
    std::unique_ptr<FlightReader> reader{};  // of this host
    const HostLink* link = nullptr;          // to another, of whose ranks ...
    size_t place = 0;                        // ... it is this one
    FlightMoment moment{};
    double still_since_ms = 0;   // no sign of work
    double silent_since_ms = 0;  // its watchdog stands still too: the process is stopped

    int rank() const { return moment.rank; }
    double still_s() const { return (now_ms() - still_since_ms) / 1000; }
    double silent_s() const { return (now_ms() - silent_since_ms) / 1000; }
  };

  void add(Peer peer) {
    peer.still_since_ms = peer.silent_since_ms = now_ms();
    peers_.push_back(std::move(peer));
  }

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
      listen();
      if (!finding_) judge();
      if (finding_) carry_out();
    }
    part();
  }

  // What the other hosts have to say, and what this one says.
  void listen() {
    std::vector<FlightMoment> here;
    std::vector<FlightPhase> phases;
    for (const Peer& peer : peers_) {
      if (peer.link != nullptr) continue;
      here.push_back(peer.moment);
      phases.push_back(peer.moment.phase);
    }
    const bool tells =
        phases != told_phases_ || now_ms() - told_at_ms_ >= std::min(20 * tick_ms_, 1000.0) / 2;
    if (tells) {
      told_at_ms_ = now_ms();
      told_phases_ = phases;
    }
    for (const auto& link : links_) {
      if (tells && !here.empty()) link->tell(here);
      link->move();
      if (!finding_ && link->finding()) decide(*link->finding());
    }
  }

  // The others need not look for this host any more.
  void part() {
    for (const auto& link : links_) link->leave();
    const Deadline deadline(kPartS);
    for (const auto& link : links_) link->close(deadline);
  }

  void look_at(Peer& peer, bool slept) const {
    if (peer.link == nullptr && peer.reader == nullptr)
      peer.reader = FlightReader::open(flight_path(options_.folder, peer.rank()));
    FlightMoment moment = peer.moment;  // until its record is begun
    if (peer.link != nullptr) moment = peer.link->ranks()[peer.place];
    if (peer.reader != nullptr) moment = peer.reader->now();
    if (slept || moment.beats != peer.moment.beats) peer.still_since_ms = now_ms();
    // One that has not begun to watch is not stopped for that.
    if (slept || moment.alive != peer.moment.alive || moment.alive == 0)
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

  static bool is_watched(const Peer& peer) {
    return !peer.moment.left && peer.moment.phase != FlightPhase::kEnded;
  }

  bool stands_still(const Peer& peer) const {
    return is_watched(peer) && peer.still_s() > limit_s(peer);
  }

  static std::string name_of(const Peer& peer) {
    return fmt::format(
        "rank {} on {} (process {})", peer.rank(), peer.moment.host, peer.moment.process);
  }

  // Why a peer is known to be gone, as one that was killed: MPI's own waits would go on for ever.
  std::string why_gone(const Peer& peer) const {
    if (!is_watched(peer)) return "";
    if (peer.link != nullptr)  // the first rank there holds the other end
      return peer.place == 0 ? peer.link->why_lost() : "";
    const auto& places = options_.places;
    if (places[static_cast<size_t>(peer.rank())].processes !=
        places[static_cast<size_t>(options_.rank)].processes)
      return "";  // in another container: its watchdog stands still
    const bool gone = ::kill(static_cast<pid_t>(peer.moment.process), 0) != 0 && errno == ESRCH;
    return gone ? "its process has ended" : "";
  }

  // What is known of one that is gone or stopped. What it told over a link is some parts of a second old; where
  // all hosts see one folder its record has the rest.
  FlightMoment last_moment(const Peer& peer) const {
    if (peer.link == nullptr) return peer.moment;
    const auto reader = FlightReader::open(flight_path(options_.folder, peer.rank()));
    if (reader == nullptr) return peer.moment;
    FlightMoment recorded = reader->now();
    const bool newer =
        recorded.process == peer.moment.process && recorded.beats > peer.moment.beats;
    return newer ? recorded : peer.moment;
  }

  void judge() {
    for (const Peer& peer : peers_) {
      const auto found = peer.reader != nullptr ? peer.reader->finding() : std::nullopt;
      if (found) return decide(*found);
    }
    for (const Peer& peer : peers_) {
      const std::string why = why_gone(peer);
      if (why.empty()) continue;
      // The launcher notices it too, and then leaves the others about a second.
      turn_ms_ = kTurnOfLostMs;
      return decide({-1,
                     fmt::format("lost rank {} on {}: {}; it was at {}",
                                 peer.rank(),
                                 peer.moment.host,
                                 why,
                                 text_of(last_moment(peer)))});
    }
    for (const Peer& peer : peers_) {
      const std::string text = difference_from_here(peer);
      if (!text.empty()) return decide({-1, text});
    }
    // Who waits has a reason, unless its process is stopped; then what it was at does not matter.
    const auto stuck = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return is_watched(peer) &&
             (peer.silent_s() > options_.timeout_s || (stands_still(peer) && !peer.moment.waiting));
    });
    if (stuck != peers_.end()) {
      return decide({stuck->rank(),
                     fmt::format("{} has done nothing for {:.3g} s: {}",
                                 name_of(*stuck),
                                 stuck->still_s(),
                                 text_of(last_moment(*stuck)))});
    }
    // One that is about to be found stopped is the reason why the others wait.
    const bool all_wait =
        peers_.size() == options_.places.size() &&
        std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
          return stands_still(peer) && peer.moment.waiting && peer.silent_s() < limit_s(peer) / 2;
        });
    if (all_wait) decide({-1, difference()});
  }

  // How what a peer has done differs from what this rank has done; empty where it does not.
  std::string difference_from_here(const Peer& peer) const {
    const FlightReader* const here = own_->reader.get();
    if (here == nullptr || &peer == own_) return "";
    uint64_t number = peer.moment.begun.number;
    const auto there = [&](uint64_t of) {
      if (of == peer.moment.begun.number) return std::optional(peer.moment.begun);
      return peer.reader != nullptr ? peer.reader->start(of) : std::nullopt;
    };
    if (peer.reader != nullptr) number = std::min(number, own_->moment.begun.number);
    std::string text;
    // Back to the first that differs, as far as it is known.
    for (; number > 0; --number) {
      const std::optional<FlightStart> mine = here->start(number), theirs = there(number);
      if (!mine || !theirs || mine->history == theirs->history) break;
      text = fmt::format("{} and {} do not do the same: {} against {}",
                         name_of(*own_),
                         name_of(peer),
                         text_of(*mine),
                         text_of(*theirs));
    }
    return text;
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

  void decide(const FlightFinding& finding) {
    finding_ = finding;
    found_at_ms_ = now_ms();
    FlightRecorder::here().tell(finding);
    for (const auto& link : links_) {
      link->tell(finding);
      link->move();
    }
  }

  // Who waits throws it. A rank that does not, since it is stuck itself or a library does not come
  // back, is ended here.
  void carry_out() {
    const double since_ms = now_ms() - found_at_ms_;
    const bool own = finding_->rank == options_.rank;
    // One that loops has a moment to say where, before the launcher ends it.
    const double grace_ms =
        finding_->rank < 0 ? 0 : std::min(300.0, options_.timeout_s * 1000 / 20);
    if (!own && since_ms >= grace_ms) set_verdict(finding_->text);
    if (own && !stack_told_) {
      stack_told_ = true;
      // Without memory or a lock, which the main thread may hold for ever.
      std::array<char, 64> text{};
      const int size = std::snprintf(
          text.data(), text.size(), "rank %d: where its main thread is:\n", options_.rank);
      print_in_handler({text.data(), static_cast<size_t>(size)});
      ::pthread_kill(main_, stack_signal());
    }
    if (since_ms < (own ? 2 * turn_ms_ : turn_ms_)) return;
    if (FlightRecorder::here().claim_last_word()) {
      log_record("error: " + finding_->text);
      print_log(fmt::format("lockstep: rank {}: error: {}\n", options_.rank, finding_->text));
    } else if (since_ms < 4 * kTurnMs) {
      return;  // it is being told, by this rank or another
    }
    end_log();
    std::_Exit(static_cast<int>(ExitCode::kPeer));
  }

  WatchdogOptions options_;
  double tick_ms_;
  pthread_t main_;
  std::vector<Peer> peers_;
  const Peer* own_ = nullptr;  // among them
  double told_at_ms_ = 0;      // the other hosts
  std::vector<FlightPhase> told_phases_;
  std::vector<std::unique_ptr<HostLink>> links_;
  std::optional<FlightFinding> finding_;
  double found_at_ms_ = 0, turn_ms_ = kTurnMs;
  bool stack_told_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

Watchdog::Watchdog(WatchdogOptions options) : watch_(std::make_unique<Watch>(std::move(options))) {}
Watchdog::~Watchdog() = default;

void Watchdog::listen_to(std::vector<std::unique_ptr<HostLink>> links) {
  watch_->listen_to(std::move(links));
}

}  // namespace lockstep
