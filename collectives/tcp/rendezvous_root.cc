// The rendezvous, as rank 0 runs it. rendezvous.h has the four steps.
//
// gather() accepts ranks until none is missing. A complete hello is one of three things:
//
//   a stranger       another run, or an address that is out of date: it gets kStranger or kFailed,
//                    and this run continues
//   a wrong rank     another version or world size, or a rank that has joined already: fail()
//   a rank           its address is added to table_, it gets kWelcome, and --missing_
//
// In between, every kLookMs, it checks what else may end the run: a rank that does not know the
// token, a rank that has joined and disconnects, another rank 0 that replaces the file, and the
// deadline. Then all ranks get the table, receive_reports() waits until each of them has connected
// to the others, and all are released together.
//
// Invariant: whatever goes wrong, at whichever rank, becomes one text that every rank gets. fail()
// sends it to the ranks that have joined and, for three seconds, to those that still come; these
// would otherwise wait for a rank 0 that is gone. So nothing here may wait for one rank without a
// deadline.
//
// The nonce identifies this process. Ranks that found the address in a file or over a channel must
// send it in their hello; so a file of an earlier run cannot lead a rank into this one.
#include <fmt/core.h>
#include <poll.h>

#include <algorithm>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/rendezvous_file.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr int kLookMs = 200;  // how often to check for disconnected ranks and for a second rank 0

class Root {
 public:
  // `listener` is not open if rank 0 has to start listening.
  Root(const TcpOptions& options, Socket listener)
      : options_(options),
        nonce_(options.info ? options.info->nonce : random_nonce()),
        deadline_(options.limits.rendezvous_s),
        joined_(static_cast<size_t>(options.size)),
        missing_(options.size - 1),
        table_(static_cast<size_t>(options.size)) {
    if (options.info) {
      listener_ = std::move(listener);
      rendezvous_point_ = endpoint_text(host_name(), options.info->port);
    } else {
      listener_ = options.file.empty() ? listen_at_address() : listen_and_publish();
    }
    table_[0].host = fixed_text<128>(host_name());
  }
  ~Root() {
    if (!options_.file.empty()) remove_rendezvous_file(options_.file, nonce_);
  }

  Mesh gather() {
    while (missing_ > 0) {
      std::optional<IncomingPeer> arrival = handshakes_.next(deadline_.poll_ms(kLookMs));
      if (arrival) {
        admit(*arrival);
        continue;
      }
      check_token_mismatches();
      check_joined();
      check_file();
      if (deadline_.passed()) throw_to_all(missing_ranks());
    }
    for (Socket& socket : joined_) {
      if (!socket.is_open()) continue;
      send_answer(socket, Answer::kWelcome, nonce_, "");
      send_to(socket, table_.data(), table_.size() * sizeof(TableEntry));
    }
    receive_reports();
    for (Socket& socket : joined_) {
      if (socket.is_open()) send_answer(socket, Answer::kWelcome, nonce_, "");
    }
    Mesh mesh;
    mesh.peers = std::move(joined_);
    for (const TableEntry& entry : table_) mesh.hosts.push_back(text_of(entry.host));
    mesh.rendezvous_point = rendezvous_point_;
    return mesh;
  }

 private:
  Socket listen_at_address() {
    rendezvous_point_ = endpoint_text(options_.address, options_.port);
    // A name may resolve to the loopback on its own host, and to another address elsewhere.
    const std::string address = resolve_first(options_.address);
    const bool here_only = is_loopback(address) && !is_loopback(options_.address);
    if (!options_.token.is_set() && (here_only || !is_loopback(address))) warn_of_no_token();
    bool in_use = false;
    try {
      return here_only ? listen_on(options_.port, &in_use)
                       : listen_at(address, options_.port, &in_use);
    } catch (const SocketError& error) {
      if (in_use) contact_other_root(options_.address, options_.port, 0);
      throw CommError(
          "rank 0 on {}: cannot listen at port {} (MASTER_PORT): {}",
          host_name(),
          options_.port,
          in_use ? "another program, or another process with RANK=0, uses it; choose a free port"
                 : error.what());
    }
  }

  void warn_of_no_token() const {
    print_log(fmt::format(
        "lockstep: warning: the ranks meet at {} without a token: whoever reaches that port can "
        "join the run; give all ranks the same LOCKSTEP_TOKEN\n",
        rendezvous_point_));
  }

  Socket listen_and_publish() {
    // The process that published the existing file may still be alive.
    if (const std::optional<RendezvousInfo> old = read_rendezvous_info(options_.file)) {
      if (old->host == host_identity()) contact_other_root("localhost", old->port, old->nonce);
    }
    Socket listener = listen_on(0);
    rendezvous_point_ = "file://" + options_.file;
    publish_rendezvous_info(options_.file,
                            local_rendezvous_info(port_of(listener), nonce_, options_.run));
    return listener;
  }

  // If the program that uses the address is rank 0 of this run, it learns that there are two, and
  // both end.
  void contact_other_root(const std::string& host, int port, uint64_t nonce) {
    constexpr double kSeconds = 2;
    Notice notice;
    try {
      const Deadline deadline(kSeconds);
      const Socket socket = connect_to(host, port, deadline);
      const Hello hello = hello_of(options_, nonce, 0);
      send_all(socket, &hello, sizeof(hello), deadline);
      notice = receive_answer(socket, hello, options_.token, deadline);
    } catch (const SocketError&) {
      return;  // not a Lockstep that waits for ranks
    }
    if (notice.answer == Answer::kFailed)
      throw CommError("rank 0 on {}: {}", host_name(), text_of(notice.text));
  }

  // Rejects a peer that is not for this run.
  bool rejected(const IncomingPeer& arrival) {
    const Hello& hello = arrival.hello;
    if (hello.protocol != kHandshakeProtocol) return false;  // nothing else in it is known
    const std::string run = text_of(hello.run);
    const bool published = options_.info || !options_.file.empty();
    if (hello.nonce != (published ? nonce_ : 0)) {
      send_answer(arrival.socket, Answer::kStranger, 0, "");
      return true;
    }
    if (run.empty() || options_.run.empty() || run == options_.run) return false;
    send_answer(arrival.socket,
                Answer::kFailed,
                0,
                fmt::format("{} belongs to run '{}', this rank to '{}'; each run needs its own",
                            rendezvous_point_,
                            options_.run,
                            run));
    return true;
  }

  void admit(IncomingPeer& arrival) {
    if (rejected(arrival)) return;
    const Hello& hello = arrival.hello;
    std::string wrong = mismatch(hello, options_);
    if (wrong.empty() && (hello.rank == 0 || joined(hello.rank).is_open()))
      wrong =
          fmt::format("rank {} came twice: from {} and from {}; each process needs its own RANK",
                      hello.rank,
                      text_of(table_[static_cast<size_t>(hello.rank)].host),
                      text_of(hello.host));
    if (!wrong.empty()) {
      send_answer(arrival.socket, Answer::kFailed, nonce_, wrong);
      if (hello.rank > 0 && hello.rank < options_.size && !joined(hello.rank).is_open()) --missing_;
      fail(wrong);
    }
    TableEntry& entry = table_[static_cast<size_t>(hello.rank)];
    const std::string address = peer_address(arrival.socket);
    if (!is_loopback(address)) entry.address = fixed_text<64>(address);
    entry.host = hello.host;
    entry.port = hello.listens_at;
    send_answer(arrival.socket, Answer::kWelcome, nonce_, "");
    joined(hello.rank) = std::move(arrival.socket);
    --missing_;
  }

  // A peer that names this very run, whose id only the launcher's processes know, is a rank with
  // another token, and waiting for it is in vain. Any other peer is a stranger.
  void check_token_mismatches() {
    while (const std::optional<HandshakeListener::TokenMismatch> mismatched =
               handshakes_.next_token_mismatch()) {
      const Hello& hello = mismatched->hello;
      const bool ours = !options_.run.empty() && text_of(hello.run) == options_.run &&
                        mismatch(hello, options_).empty() && hello.rank > 0 &&
                        !joined(hello.rank).is_open();
      if (!ours) continue;
      --missing_;
      fail(fmt::format(
          "rank {} at {} has another LOCKSTEP_TOKEN, or none; all ranks must be given the "
          "same",
          hello.rank,
          mismatched->address));
    }
  }

  // A rank that has joined sends nothing before it has the table, unless it has ended.
  void check_joined() {
    for (int rank = 1; rank < options_.size; ++rank) {
      if (joined(rank).is_open() && is_readable(joined(rank))) fail(disconnected(rank));
    }
  }

  // Another rank 0 that publishes later replaces the file.
  void check_file() {
    if (options_.file.empty()) return;
    const std::optional<RendezvousInfo> info = read_rendezvous_info(options_.file);
    if (info && info->nonce != nonce_)
      fail(
          fmt::format("another process with rank 0 (on {}) has taken {}; each run needs its own "
                      "file and each process its own RANK",
                      lockstep::collectives::host_of(*info),
                      rendezvous_point_));
  }

  void receive_reports() {
    constexpr double kConnectSeconds = 60;  // the last rank may have joined at the last moment
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
        receive_report(waiting[i]);
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

  void receive_report(int rank) {
    Notice notice;
    try {
      notice = receive_notice(joined(rank), deadline_);
    } catch (const SocketError&) {
      fail(disconnected(rank));
    }
    if (notice.answer != Answer::kWelcome) fail(text_of(notice.text));
  }

  // Reports the failure to every rank that has joined and, for a while, to those that still come,
  // which would otherwise wait for a rank 0 that is gone. Then throws.
  [[noreturn]] void fail(const std::string& text) {
    constexpr double kLingerSeconds = 3;
    const Deadline deadline(kLingerSeconds);
    while (missing_ > 0 && !deadline.passed()) {
      const std::optional<IncomingPeer> arrival = handshakes_.next(deadline.poll_ms(kLookMs));
      if (!arrival || rejected(*arrival)) continue;
      send_answer(arrival->socket, Answer::kFailed, nonce_, text);
      --missing_;
    }
    throw_to_all(text);
  }

  [[noreturn]] void throw_to_all(const std::string& text) {
    for (const Socket& socket : joined_) {
      if (socket.is_open()) send_answer(socket, Answer::kFailed, nonce_, text);
    }
    throw CommError("rank 0 on {}: {}", host_name(), text);
  }

  void send_to(const Socket& socket, const void* data, size_t bytes) {
    try {
      send_all(socket, data, bytes, deadline_);
    } catch (const SocketError&) {  // receive_reports() finds out which rank it was
    }
  }

  std::string missing_ranks() {
    constexpr int kNamed = 16;
    std::string ranks;
    int missing = 0;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (joined(rank).is_open()) continue;
      if (++missing <= kNamed) append_item(ranks, std::to_string(rank));
    }
    return fmt::format("rank{} {}{} of {} did not come to {} within {:g} s",
                       plural(missing),
                       ranks,
                       missing > kNamed ? ", ..." : "",
                       options_.size,
                       rendezvous_point_,
                       options_.limits.rendezvous_s);
  }

  std::string disconnected(int rank) {
    return fmt::format("rank {} on {} ended before all ranks had come", rank, host_of(rank));
  }
  std::string host_of(int rank) { return text_of(table_[static_cast<size_t>(rank)].host); }
  Socket& joined(int rank) { return joined_[static_cast<size_t>(rank)]; }

  const TcpOptions& options_;
  const uint64_t nonce_;
  Deadline deadline_;
  std::string rendezvous_point_;
  Socket listener_;
  HandshakeListener handshakes_{listener_, options_.token};
  std::vector<Socket> joined_;  // by rank
  int missing_ = 0;             // ranks that have not joined
  std::vector<TableEntry> table_;
};

}  // namespace

Mesh receive_ranks(const TcpOptions& options, Socket listener) {
  return Root(options, std::move(listener)).gather();
}

}  // namespace lockstep::collectives
