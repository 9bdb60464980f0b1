// The rendezvous as rank 0 sees it.
#include <fmt/core.h>
#include <poll.h>

#include <algorithm>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/meeting_file.h"
#include "collectives/tcp/rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/streams.h"

namespace lockstep {
namespace {

constexpr int kLookMs = 200;  // how often a rank that has left, or a second rank 0, is looked for

class Root {
 public:
  // `listener`: not open where rank 0 is yet to listen.
  Root(const TcpOptions& options, Socket listener)
      : options_(options),
        nonce_(options.meeting ? options.meeting->nonce : random_nonce()),
        deadline_(options.limits.rendezvous_s),
        joined_(static_cast<size_t>(options.size)),
        missing_(options.size - 1),
        table_(static_cast<size_t>(options.size)) {
    if (options.meeting) {
      listener_ = std::move(listener);
      meeting_point_ = endpoint_text(host_name(), options.meeting->port);
    } else {
      listener_ = options.file.empty() ? listen_at_address() : listen_and_publish();
    }
    table_[0].host = fixed_text<128>(host_name());
  }
  ~Root() {
    if (!options_.file.empty()) remove_meeting(options_.file, nonce_);
  }

  Mesh gather() {
    while (missing_ > 0) {
      std::optional<Arrival> arrival = reception_.next(deadline_.poll_ms(kLookMs));
      if (arrival) {
        admit(*arrival);
        continue;
      }
      check_impostors();
      check_joined();
      check_file();
      if (deadline_.passed()) throw_to_all(missing_ranks());
    }
    for (Socket& socket : joined_) {
      if (!socket.is_open()) continue;
      tell(socket, Answer::kWelcome, nonce_, "");
      send_to(socket, table_.data(), table_.size() * sizeof(TableEntry));
    }
    hear_reports();
    for (Socket& socket : joined_) {
      if (socket.is_open()) tell(socket, Answer::kWelcome, nonce_, "");
    }
    Mesh mesh;
    mesh.peers = std::move(joined_);
    for (const TableEntry& entry : table_) mesh.hosts.push_back(text_of(entry.host));
    mesh.meeting_point = meeting_point_;
    return mesh;
  }

 private:
  Socket listen_at_address() {
    meeting_point_ = endpoint_text(options_.address, options_.port);
    // A name may stand for the loopback on its own host, and for another address elsewhere.
    const std::string address = resolve_first(options_.address);
    const bool here_only = is_loopback(address) && !is_loopback(options_.address);
    if (!options_.token.is_set() && (here_only || !is_loopback(address))) warn_of_no_token();
    bool in_use = false;
    try {
      return here_only ? listen_on(options_.port, &in_use)
                       : listen_at(address, options_.port, &in_use);
    } catch (const SocketError& error) {
      if (in_use) greet_other_root(options_.address, options_.port, 0);
      throw CommError(
          "rank 0 on {}: cannot listen at port {} (MASTER_PORT): {}",
          host_name(),
          options_.port,
          in_use ? "another program, or another process with RANK=0, has it; choose a free port"
                 : error.what());
    }
  }

  void warn_of_no_token() const {
    print_log(fmt::format(
        "lockstep: warning: the ranks meet at {} without a token: whoever reaches that port can "
        "join the run; give all ranks the same LOCKSTEP_TOKEN\n",
        meeting_point_));
  }

  Socket listen_and_publish() {
    // Whoever published what is there already may be alive.
    if (const std::optional<Meeting> old = read_meeting(options_.file)) {
      if (old->host == host_identity()) greet_other_root("localhost", old->port, old->nonce);
    }
    Socket listener = listen_on(0);
    meeting_point_ = "file://" + options_.file;
    publish_meeting(options_.file, meeting_here(port_of(listener), nonce_, options_.run));
    return listener;
  }

  // Where the program that was there first is rank 0 of this run, it learns that there are two, and
  // both end.
  void greet_other_root(const std::string& host, int port, uint64_t nonce) {
    constexpr double kSeconds = 2;
    Notice notice;
    try {
      const Deadline deadline(kSeconds);
      const Socket socket = connect_to(host, port, deadline);
      const Hello hello = hello_of(options_, nonce, 0);
      send_all(socket, &hello, sizeof(hello), deadline);
      notice = hear_answer(socket, hello, options_.token, deadline);
    } catch (const SocketError&) {
      return;  // no Lockstep that waits for ranks
    }
    if (notice.answer == Answer::kFailed)
      throw CommError("rank 0 on {}: {}", host_name(), text_of(notice.text));
  }

  // Tells a visitor that was not meant for this run so.
  bool turned_away(const Arrival& arrival) {
    const Hello& hello = arrival.hello;
    if (hello.protocol != kHandshakeProtocol) return false;  // nothing else in it is known
    const std::string run = text_of(hello.run);
    const bool published = options_.meeting || !options_.file.empty();
    if (hello.nonce != (published ? nonce_ : 0)) {
      tell(arrival.socket, Answer::kStranger, 0, "");
      return true;
    }
    if (run.empty() || options_.run.empty() || run == options_.run) return false;
    tell(arrival.socket,
         Answer::kFailed,
         0,
         fmt::format("{} belongs to run '{}', this rank to '{}'; each run needs its own",
                     meeting_point_,
                     options_.run,
                     run));
    return true;
  }

  void admit(Arrival& arrival) {
    if (turned_away(arrival)) return;
    const Hello& hello = arrival.hello;
    std::string wrong = mismatch(hello, options_);
    if (wrong.empty() && (hello.rank == 0 || joined(hello.rank).is_open()))
      wrong =
          fmt::format("rank {} came twice: from {} and from {}; each process needs its own RANK",
                      hello.rank,
                      text_of(table_[static_cast<size_t>(hello.rank)].host),
                      text_of(hello.host));
    if (!wrong.empty()) {
      tell(arrival.socket, Answer::kFailed, nonce_, wrong);
      if (hello.rank > 0 && hello.rank < options_.size && !joined(hello.rank).is_open()) --missing_;
      fail(wrong);
    }
    TableEntry& entry = table_[static_cast<size_t>(hello.rank)];
    const std::string address = peer_address(arrival.socket);
    if (!is_loopback(address)) entry.address = fixed_text<64>(address);
    entry.host = hello.host;
    entry.port = hello.listens_at;
    tell(arrival.socket, Answer::kWelcome, nonce_, "");
    joined(hello.rank) = std::move(arrival.socket);
    --missing_;
  }

  // Who names this very run, as only its launcher's processes know it, is a rank that was given
  // another token, and would be waited for in vain. Anybody else is a stranger.
  void check_impostors() {
    while (const std::optional<Reception::Impostor> impostor = reception_.impostor()) {
      const Hello& hello = impostor->hello;
      const bool ours = !options_.run.empty() && text_of(hello.run) == options_.run &&
                        mismatch(hello, options_).empty() && hello.rank > 0 &&
                        !joined(hello.rank).is_open();
      if (!ours) continue;
      --missing_;
      fail(fmt::format(
          "rank {} at {} has another LOCKSTEP_TOKEN, or none; all ranks must be given the "
          "same",
          hello.rank,
          impostor->address));
    }
  }

  // A rank that has joined says nothing before it has the table, unless it has ended.
  void check_joined() {
    for (int rank = 1; rank < options_.size; ++rank) {
      if (joined(rank).is_open() && has_news(joined(rank))) fail(left(rank));
    }
  }

  // Another rank 0 that publishes later takes the file over.
  void check_file() {
    if (options_.file.empty()) return;
    const std::optional<Meeting> meeting = read_meeting(options_.file);
    if (meeting && meeting->nonce != nonce_)
      fail(
          fmt::format("another process with rank 0 (on {}) has taken {}; each run needs its own "
                      "file and each process its own RANK",
                      lockstep::host_of(*meeting),
                      meeting_point_));
  }

  void hear_reports() {
    constexpr double kConnectSeconds = 60;  // the last rank may have come at the last moment
    deadline_ = Deadline(std::max(kConnectSeconds, options_.limits.rendezvous_s));
    std::vector<int> waiting;
    for (int rank = 1; rank < options_.size; ++rank) waiting.push_back(rank);
    while (!waiting.empty()) {
      std::vector<pollfd> entries;
      entries.reserve(waiting.size());
      for (const int rank : waiting) entries.push_back({joined(rank).descriptor(), POLLIN, 0});
      poll(entries.data(), entries.size(), deadline_.poll_ms(kLookMs));
      for (size_t i = waiting.size(); i-- > 0;) {
        if (entries[i].revents == 0) continue;
        hear_report(waiting[i]);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (!waiting.empty() && deadline_.passed())
        fail(
            fmt::format("rank {} on {} did not reach the other ranks; does a firewall keep them "
                        "from each other's ports?",
                        waiting[0],
                        host_of(waiting[0])));
    }
  }

  void hear_report(int rank) {
    Notice notice;
    try {
      notice = hear(joined(rank), deadline_);
    } catch (const SocketError&) {
      fail(left(rank));
    }
    if (notice.answer != Answer::kWelcome) fail(text_of(notice.text));
  }

  // Tells every rank that has come, and for a while those that still come, which would else wait
  // for a rank 0 that is gone; then throws.
  [[noreturn]] void fail(const std::string& text) {
    constexpr double kLingerSeconds = 3;
    const Deadline deadline(kLingerSeconds);
    while (missing_ > 0 && !deadline.passed()) {
      const std::optional<Arrival> arrival = reception_.next(deadline.poll_ms(kLookMs));
      if (!arrival || turned_away(*arrival)) continue;
      tell(arrival->socket, Answer::kFailed, nonce_, text);
      --missing_;
    }
    throw_to_all(text);
  }

  [[noreturn]] void throw_to_all(const std::string& text) {
    for (const Socket& socket : joined_) {
      if (socket.is_open()) tell(socket, Answer::kFailed, nonce_, text);
    }
    throw CommError("rank 0 on {}: {}", host_name(), text);
  }

  void send_to(const Socket& socket, const void* data, size_t bytes) {
    try {
      send_all(socket, data, bytes, deadline_);
    } catch (const SocketError&) {  // hear_reports() finds out who it was
    }
  }

  std::string missing_ranks() {
    constexpr int kNamed = 16;
    std::string ranks;
    int missing = 0;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (joined(rank).is_open()) continue;
      if (++missing <= kNamed) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    }
    return fmt::format("rank{} {}{} of {} did not come to {} within {:g} s",
                       missing == 1 ? "" : "s",
                       ranks,
                       missing > kNamed ? ", ..." : "",
                       options_.size,
                       meeting_point_,
                       options_.limits.rendezvous_s);
  }

  std::string left(int rank) {
    return fmt::format("rank {} on {} ended before all ranks had come", rank, host_of(rank));
  }
  std::string host_of(int rank) { return text_of(table_[static_cast<size_t>(rank)].host); }
  Socket& joined(int rank) { return joined_[static_cast<size_t>(rank)]; }

  const TcpOptions& options_;
  const uint64_t nonce_;
  Deadline deadline_;
  std::string meeting_point_;
  Socket listener_;
  Reception reception_{listener_, options_.token};
  std::vector<Socket> joined_;  // by rank
  int missing_ = 0;             // ranks that have not come
  std::vector<TableEntry> table_;
};

}  // namespace

Mesh receive_ranks(const TcpOptions& options, Socket listener) {
  return Root(options, std::move(listener)).gather();
}

}  // namespace lockstep
