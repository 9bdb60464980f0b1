// The rendezvous as every rank but 0 sees it.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/meeting_file.h"
#include "collectives/tcp/rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"

namespace lockstep {
namespace {

constexpr int kLookMs = 100;
constexpr double kAttemptSeconds = 5;  // for one address: another may be the right one
constexpr double kAnswerSeconds = 30;  // rank 0 answers as soon as it has time

class Guest {
 public:
  explicit Guest(const TcpOptions& options)
      : options_(options),
        deadline_(options.limits.rendezvous_s),
        // Rank 0 may have started its clock later, and says itself when it gives up.
        last_deadline_(2 * options.limits.rendezvous_s + kAnswerSeconds),
        table_(static_cast<size_t>(options.size)) {
    mesh_.peers.resize(static_cast<size_t>(options.size));
  }

  Mesh join() {
    find_root();
    hear_root();
    receive_table();
    try {
      meet_the_others();
    } catch (const SocketError& error) {
      tell(root(), Answer::kFailed, nonce_, error.what());
      hear_root();
      fail(error.what());  // rank 0 knows better, unless it is gone
    }
    tell(root(), Answer::kWelcome, nonce_, "");
    hear_root();
    for (const TableEntry& entry : table_) mesh_.hosts.push_back(text_of(entry.host));
    return std::move(mesh_);
  }

 private:
  // Tries until rank 0 answers or the time is up.
  void find_root() {
    std::string last = "nothing there yet";
    while (true) {
      if (options_.meeting) {
        mesh_.meeting_point = endpoint_text(host_of(*options_.meeting), options_.meeting->port);
        if (greet_published_root(*options_.meeting, last)) return;
      } else if (options_.file.empty()) {
        mesh_.meeting_point = endpoint_text(options_.address, options_.port);
        if (greet_root(options_.address, options_.port, 0, last)) return;
      } else {
        mesh_.meeting_point = "file://" + options_.file;
        const std::optional<Meeting> meeting = read_meeting(options_.file);
        if (meeting && greet_published_root(*meeting, last)) return;
      }
      if (deadline_.passed())
        throw UnreachableError("rank {} on {}: rank 0 did not answer at {} within {:g} s ({})",
                               options_.rank,
                               host_name(),
                               mesh_.meeting_point,
                               options_.limits.rendezvous_s,
                               last);
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }

  bool greet_published_root(const Meeting& meeting, std::string& last) {
    if (!meeting.run.empty() && !options_.run.empty() && meeting.run != options_.run) {
      last = fmt::format("the file there is of run '{}'", meeting.run);
      return false;
    }
    std::string tried;
    for (const std::string& address : meeting.addresses) {
      if (greet_root(address, meeting.port, meeting.nonce, last)) return true;
      tried += (tried.empty() ? "" : "; ") + last;
      if (deadline_.passed()) break;
    }
    last = tried;
    return false;
  }

  // True where rank 0 of this run answers; `last` says why not.
  bool greet_root(const std::string& address, int port, uint64_t nonce, std::string& last) {
    Notice notice;
    Socket socket;
    try {
      socket = connect_to(address, port, Deadline(kAttemptSeconds));
      listener_ = listen_beside(socket);
      const Hello hello = hello_of(options_, nonce, port_of(listener_));
      send_all(socket, &hello, sizeof(hello), Deadline(kAttemptSeconds));
      await_answer(socket, nonce);
      notice = hear_answer(socket, hello, options_.token, Deadline(kAnswerSeconds));
    } catch (const SocketError& error) {
      last = fmt::format("{}: {}", endpoint_text(address, port), error.what());
      return false;
    }
    if (notice.answer == Answer::kFailed) fail(text_of(notice.text));
    if (notice.answer == Answer::kStranger) {
      last = fmt::format("{}: rank 0 of another run", endpoint_text(address, port));
      return false;
    }
    nonce_ = notice.nonce;
    root_address_ = peer_address(socket);
    mesh_.peers[0] = std::move(socket);
    return true;
  }

  // Where the others reach this rank: at the address that has led to rank 0. Not where that is the
  // loopback, unless no rank knows of another one.
  Socket listen_beside(const Socket& root) const {
    const std::vector<std::string> known = options_.meeting        ? options_.meeting->addresses
                                           : options_.file.empty() ? std::vector{options_.address}
                                                                   : std::vector<std::string>{};
    const bool all_here = !known.empty() && std::all_of(known.begin(), known.end(), is_loopback);
    const std::string address = own_address(root);
    return is_loopback(address) && !all_here ? listen_on(0) : listen_at(address, 0);
  }

  // An address from a file is believed for as long as the file says so: the program that has it now
  // may be none that answers.
  void await_answer(const Socket& socket, uint64_t nonce) {
    const Deadline deadline(std::min(kAnswerSeconds, options_.limits.rendezvous_s));
    while (!has_news(socket, kLookMs)) {
      if (deadline.passed()) throw SocketError("no answer in time");
      if (!options_.file.empty()) {
        const std::optional<Meeting> meeting = read_meeting(options_.file);
        if (!meeting || meeting->nonce != nonce) throw SocketError("rank 0 is somewhere else now");
      }
    }
  }

  void receive_table() {
    try {
      receive_all(root(), table_.data(), table_.size() * sizeof(TableEntry), last_deadline_);
    } catch (const SocketError& error) {
      fail(lost_root(error));
    }
  }

  // Throws SocketError with a line for people.
  void meet_the_others() {
    for (int rank = 1; rank < options_.rank; ++rank) connect_below(rank);
    int missing = options_.size - 1 - options_.rank;
    Reception reception(listener_, options_.token);
    while (missing > 0) {
      std::optional<Arrival> arrival = reception.next(last_deadline_.poll_ms(kLookMs));
      if (arrival && admit(*arrival)) --missing;
      if (has_news(root())) hear_root();  // nothing but a failure before this rank has reported
      if (last_deadline_.passed())
        throw SocketError(
            fmt::format("ranks above {} on {} did not reach it: does a firewall "
                        "keep them from each other's ports?",
                        options_.rank,
                        host_name()));
    }
  }

  void connect_below(int rank) {
    const TableEntry& entry = table_[static_cast<size_t>(rank)];
    const std::string known = text_of(entry.address),
                      address = known.empty() ? root_address_ : known;
    try {
      const Deadline deadline(std::min(kAnswerSeconds, options_.limits.rendezvous_s));
      Socket socket = connect_to(address, static_cast<int>(entry.port), deadline);
      const Hello hello = hello_of(options_, nonce_, 0);
      send_all(socket, &hello, sizeof(hello), deadline);
      const Notice notice = hear_answer(socket, hello, options_.token, last_deadline_);
      if (notice.answer != Answer::kWelcome) throw SocketError("another process is there");
      mesh_.peers[static_cast<size_t>(rank)] = std::move(socket);
    } catch (const SocketError& error) {
      throw SocketError(fmt::format("rank {} on {} cannot reach rank {} on {} at {}: {}",
                                    options_.rank,
                                    host_name(),
                                    rank,
                                    text_of(entry.host),
                                    endpoint_text(address, static_cast<int>(entry.port)),
                                    error.what()));
    }
  }

  bool admit(Arrival& arrival) {
    const Hello& hello = arrival.hello;
    const bool expected = hello.nonce == nonce_ && mismatch(hello, options_).empty() &&
                          hello.rank > options_.rank &&
                          !mesh_.peers[static_cast<size_t>(hello.rank)].is_open();
    tell(arrival.socket, expected ? Answer::kWelcome : Answer::kStranger, nonce_, "");
    if (expected) mesh_.peers[static_cast<size_t>(hello.rank)] = std::move(arrival.socket);
    return expected;
  }

  // Waits for rank 0's word; throws CommError where it says that the run has failed.
  void hear_root() {
    Notice notice;
    try {
      notice = hear(root(), last_deadline_);
    } catch (const SocketError& error) {
      fail(lost_root(error));
    }
    if (notice.answer != Answer::kWelcome) fail(text_of(notice.text));
  }

  static std::string lost_root(const SocketError& error) {
    return fmt::format("lost rank 0 before all ranks had come: {}", error.what());
  }
  [[noreturn]] void fail(const std::string& text) {
    throw CommError("rank {} on {}: {}", options_.rank, host_name(), text);
  }
  const Socket& root() const { return mesh_.peers[0]; }

  const TcpOptions& options_;
  Deadline deadline_, last_deadline_;
  Socket listener_;
  std::vector<TableEntry> table_;
  uint64_t nonce_ = 0;
  std::string root_address_;
  Mesh mesh_;
};

// A connection to every rank may be more than a process may have open by default.
void allow_descriptors(int ranks) {
  constexpr rlim_t kOthers = 512;  // files, and connections on their way
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, static_cast<rlim_t>(ranks) + kOthers);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Mesh visit_rank_0(const TcpOptions& options) { return Guest(options).join(); }

Mesh join_mesh(const TcpOptions& options, Socket listener) {
  if (options.size == 1) {
    Mesh mesh;
    mesh.peers.resize(1);
    mesh.hosts.push_back(host_name());
    return mesh;
  }
  allow_descriptors(options.size);
  try {
    return options.rank == 0 ? receive_ranks(options, std::move(listener)) : visit_rank_0(options);
  } catch (const SocketError& error) {
    throw CommError("rank {} on {}: {}", options.rank, host_name(), error.what());
  }
}

}  // namespace lockstep
