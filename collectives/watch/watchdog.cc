// How a rank that hangs is found, and how the run ends with one line that names it.
//
// Every rank's flight recorder is a file with `beats` (signs of work), `alive` (ticks of its
// watchdog), the phase, the operation that it waits for, and a hash of all operations started so
// far (`history`). Every tick_ms_ this thread looks at all peers: it reads the records of its
// host's ranks, and those of other hosts arrive over links (rank 0 sees the ranks of all hosts, the
// first rank of each other host sees rank 0). diagnose() takes the first of these:
//
//   1. a record has a finding already     another watchdog of the host was first
//   2. a process is gone                  killed, or its link is lost
//   3. another history than mine          the ranks run different operations; names the first one
//   4. no beats beyond the limit, and     it hangs outside of any wait
//      not waiting; or no ticks either    the process is stopped
//   5. a rank's GPU beyond the limit      compares how far the GPUs are; rank 0, or on one host
//   6. all ranks wait beyond the limit    a deadlock; only rank 0, or on one host
//
// A rank that waits is not to blame as long as some other one may be: so 4 skips ranks that wait,
// unless they are stopped, and 5 and 6 come later and not while a rank is about to be found
// stopped. A rank may hang in a call of CUDA because its GPU waits for another rank's: 4 skips it.
// Limits are longer in phases that read or write files.
//
// decide() passes the finding on to the record and over all links, so that the first one counts
// everywhere. act_on_finding() then makes it the watchdog error, which every rank that waits
// throws: the run ends the usual way. A rank whose main thread hangs prints its stack. A process
// that still lives after report_ms_ (a library that does not return) reports the error, if nobody
// else has, and exits with code 6.
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

#include "collectives/agree/watchdog_error.h"
#include "collectives/watch/late_device.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

constexpr double kLeaveS = 0.5;  // to announce that this host leaves
// How long the ranks have to report the finding themselves.
constexpr double kReportMs = 2000, kReportLostMs = 400;

int stack_signal() { return SIGRTMIN + 2; }

// Calls only what a signal handler may call.
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
    ::backtrace(&first, 1);  // loads now what it needs, so that the handler need not
    std::signal(stack_signal(), print_stack);
    const std::vector<RankLocation>& locations = options_.locations;
    peers_.reserve(locations.size());
    for (size_t rank = 0; rank < locations.size(); ++rank) {
      if (locations[rank].machine == locations[static_cast<size_t>(options_.rank)].machine)
        add({.moment = first_moment(static_cast<int>(rank), locations[rank])});
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
        add({.link = link.get(), .index = i, .moment = link->ranks()[i]});
      if (finding_) link->report(*finding_);
    }
  }

 private:
  struct Peer {
    std::unique_ptr<FlightReader> reader{};  // for a rank of this host
    const HostLink* link = nullptr;          // for a rank of another host:
    size_t index = 0;                        // its index among the link's ranks
    FlightMoment moment{};
    double still_since_ms = 0;   // no sign of work since then
    double silent_since_ms = 0;  // no tick of its watchdog since then: the process is stopped

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
      // If this process or the machine has slept, this thread has not watched.
      const bool slept = now_ms() - last_ms > 10 * tick_ms_ + 1000;
      last_ms = now_ms();
      FlightRecorder::here().keep_alive();
      for (Peer& peer : peers_) update(peer, slept);
      listen();
      if (!finding_) diagnose();
      if (finding_) act_on_finding();
    }
    leave_links();
  }

  // Exchanges states and findings with the other hosts.
  void listen() {
    std::vector<FlightMoment> here;
    std::vector<FlightPhase> phases;
    for (const Peer& peer : peers_) {
      if (peer.link != nullptr) continue;
      here.push_back(peer.moment);
      phases.push_back(peer.moment.phase);
    }
    const bool sends =
        phases != sent_phases_ || now_ms() - sent_at_ms_ >= std::min(20 * tick_ms_, 1000.0) / 2;
    if (sends) {
      sent_at_ms_ = now_ms();
      sent_phases_ = phases;
    }
    for (const auto& link : links_) {
      if (sends && !here.empty()) link->report(here);
      link->move();
      if (!finding_ && link->finding()) decide(*link->finding());
    }
  }

  // Tells the other hosts that they need not watch this one any more.
  void leave_links() {
    for (const auto& link : links_) link->leave();
    const Deadline deadline(kLeaveS);
    for (const auto& link : links_) link->close(deadline);
  }

  void update(Peer& peer, bool slept) const {
    if (peer.link == nullptr && peer.reader == nullptr)
      peer.reader = FlightReader::open(flight_path(options_.folder, peer.rank()));
    FlightMoment moment = peer.moment;  // until its record exists
    if (peer.link != nullptr) moment = peer.link->ranks()[peer.index];
    if (peer.reader != nullptr) moment = peer.reader->now();
    if (slept || moment.beats != peer.moment.beats) peer.still_since_ms = now_ms();
    // A rank whose watchdog has not started is not taken for stopped.
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
    return lockstep::collectives::name_of(peer.moment);
  }

  // Whether the GPU of a rank waits for another rank's, so that its host cannot queue more work.
  bool waits_for_device(const Peer& peer) const {
    if (peer.silent_s() > options_.timeout_s) return false;
    // This host does not see all ranks; rank 0 does.
    if (peers_.size() < options_.locations.size() && peer.moment.device.inside()) return true;
    return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& other) {
      return is_watched(other) && other.moment.device.count < peer.moment.device.count;
    });
  }

  // Whether nothing is known of a rank on another host because the rank that reports for that host
  // is silent, and about to be found.
  bool reporter_is_silent(const Peer& peer) const {
    return peer.link != nullptr && peer.index > 0 &&
           std::any_of(peers_.begin(), peers_.end(), [&](const Peer& other) {
             return other.link == peer.link && other.index == 0 && is_watched(other) &&
                    other.silent_s() > options_.timeout_s / 2;
           });
  }

  // Returns why a peer is known to be gone, for example killed; empty if it is not. MPI itself
  // would wait for it for ever.
  std::string why_gone(const Peer& peer) const {
    if (!is_watched(peer)) return "";
    if (peer.link != nullptr)  // that rank holds the other end
      return peer.index == 0 ? peer.link->why_lost() : "";
    const auto& locations = options_.locations;
    if (locations[static_cast<size_t>(peer.rank())].pid_namespace !=
        locations[static_cast<size_t>(options_.rank)].pid_namespace)
      return "";  // in another container: noticed as silent
    const bool gone = ::kill(static_cast<pid_t>(peer.moment.process), 0) != 0 && errno == ESRCH;
    return gone ? "its process has ended" : "";
  }

  // The last known state of a rank that is gone or stopped. A state from a link may be up to a
  // second old; if all hosts share the run folder, the rank's record is newer.
  FlightMoment last_moment(const Peer& peer) const {
    if (peer.link == nullptr) return peer.moment;
    const auto reader = FlightReader::open(flight_path(options_.folder, peer.rank()));
    if (reader == nullptr) return peer.moment;
    FlightMoment recorded = reader->now();
    const bool newer =
        recorded.process == peer.moment.process && recorded.beats > peer.moment.beats;
    return newer ? recorded : peer.moment;
  }

  void diagnose() {
    for (const Peer& peer : peers_) {
      const auto found = peer.reader != nullptr ? peer.reader->finding() : std::nullopt;
      if (found) return decide(*found);
    }
    for (const Peer& peer : peers_) {
      const std::string why = why_gone(peer);
      if (why.empty()) continue;
      // The launcher notices it too, and then gives the others about a second.
      report_ms_ = kReportLostMs;
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
    // A rank that waits has a reason to, unless its process is stopped; then its state does not
    // matter.
    const auto stuck = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return is_watched(peer) && !reporter_is_silent(peer) &&
             (peer.silent_s() > options_.timeout_s ||
              (stands_still(peer) && !peer.moment.waiting && !waits_for_device(peer)));
    });
    if (stuck != peers_.end()) {
      return decide({stuck->rank(),
                     fmt::format("{} has done nothing for {:.3g} s: {}",
                                 name_of(*stuck),
                                 stuck->still_s(),
                                 text_of(last_moment(*stuck)))});
    }
    if (peers_.size() < options_.locations.size()) return;
    const std::string late = late_device();
    if (!late.empty()) return decide({-1, late});
    // A rank that is about to be found stopped is the reason why the others wait.
    const bool all_wait = std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return stands_still(peer) && peer.moment.waiting && peer.silent_s() < limit_s(peer) / 2;
    });
    if (all_wait) decide({-1, difference()});
  }

  // The ranks for whose GPUs the others wait, as late_device.h describes them.
  std::string late_device() const {
    std::vector<FlightMoment> moments;
    for (const Peer& peer : peers_) {
      // It hangs on its host, and is about to be found.
      if (is_watched(peer) && !peer.moment.waiting && peer.still_s() > limit_s(peer) / 2 &&
          !waits_for_device(peer))
        return "";
      moments.push_back(peer.moment);
    }
    std::ranges::sort(moments, {}, &FlightMoment::rank);
    return lockstep::collectives::late_device(moments);
  }

  // Describes the first operation in which a peer differs from this rank; empty if there is none.
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
    // Goes back to the first difference within the operations on record.
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

  // Describes what all ranks wait for.
  std::string difference() const {
    std::string text;
    bool same = true;
    const FlightEntry first = peers_[0].moment.last.value_or(FlightEntry{});
    for (const Peer& peer : peers_) {
      const FlightEntry last = peer.moment.last.value_or(FlightEntry{});
      same = same && last.collective == first.collective && last.op == first.op &&
             last.bytes == first.bytes;
      append_item(text, fmt::format("{} in {}", name_of(peer), text_of(last)));
    }
    return fmt::format("all ranks have waited for {:.3g} s, {}: {}",
                       peers_[0].still_s(),
                       same ? "though for the same" : "for different things",
                       text);
  }

  void decide(const FlightFinding& finding) {
    finding_ = finding;
    found_at_ms_ = now_ms();
    FlightRecorder::here().report(finding);
    for (const auto& link : links_) {
      link->report(finding);
      link->move();
    }
  }

  // A rank that waits throws the finding. A rank that does not, because it hangs or a library does
  // not return, is ended here.
  void act_on_finding() {
    const double since_ms = now_ms() - found_at_ms_;
    const bool own = finding_->rank == options_.rank;
    // A rank in an endless loop has a moment to print its stack before the launcher ends it.
    const double grace_ms =
        finding_->rank < 0 ? 0 : std::min(300.0, options_.timeout_s * 1000 / 20);
    if (!own && since_ms >= grace_ms) set_watchdog_error(finding_->text);
    if (own && !stack_printed_) {
      stack_printed_ = true;
      // Uses neither memory nor a lock that the main thread may hold for ever.
      std::array<char, 64> text{};
      const int size = std::snprintf(
          text.data(), text.size(), "rank %d: stack of its main thread:\n", options_.rank);
      print_in_handler({text.data(), static_cast<size_t>(size)});
      ::pthread_kill(main_, stack_signal());
    }
    if (since_ms < (own ? 2 * report_ms_ : report_ms_)) return;
    if (FlightRecorder::here().claim_report()) {
      log_record("error: " + finding_->text);
      print_log(fmt::format("lockstep: rank {}: error: {}\n", options_.rank, finding_->text));
    } else if (since_ms < 4 * kReportMs) {
      return;  // this rank or another is reporting it
    }
    end_log();
    std::_Exit(static_cast<int>(ExitCode::kPeer));
  }

  WatchdogOptions options_;
  double tick_ms_;
  pthread_t main_;
  std::vector<Peer> peers_;
  const Peer* own_ = nullptr;  // this rank, in peers_
  double sent_at_ms_ = 0;      // to the other hosts
  std::vector<FlightPhase> sent_phases_;
  std::vector<std::unique_ptr<HostLink>> links_;
  std::optional<FlightFinding> finding_;
  double found_at_ms_ = 0, report_ms_ = kReportMs;
  bool stack_printed_ = false;

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

}  // namespace lockstep::collectives
