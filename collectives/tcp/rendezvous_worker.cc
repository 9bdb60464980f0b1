// The rendezvous as every rank but 0 runs it. rendezvous.h has the steps.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/rendezvous_file.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr int kLookMs = 100;
constexpr double kAttemptSeconds = 5;  // for one address: another one may be right
constexpr double kAnswerSeconds = 30;  // rank 0 answers as soon as it has time

class Worker {
 public:
  explicit Worker(const TcpOptions& options)
      : options_(options),
        deadline_(options.limits.rendezvous_s),
        // Rank 0 may have started its clock later, and reports itself when it gives up.
        last_deadline_(2 * options.limits.rendezvous_s + kAnswerSeconds),
        table_(static_cast<size_t>(options.size)) {
    mesh_.peers.resize(static_cast<size_t>(options.size));
  }

  Mesh join() {
    find_root();
    await_root();
    receive_table();
    try {
      connect_to_peers();
    } catch (const SocketError& error) {
      send_answer(root(), Answer::kFailed, nonce_, error.what());
      await_root();
      fail(error.what());  // rank 0 knows the cause, unless it is gone
    }
    send_answer(root(), Answer::kWelcome, nonce_, "");
    await_root();
    for (const TableEntry& entry : table_) mesh_.hosts.push_back(text_of(entry.host));
    return std::move(mesh_);
  }

 private:
  // Retries until rank 0 answers or the deadline passes.
  void find_root() {
    std::string last = "no answer yet";
    while (true) {
      if (options_.info) {
        mesh_.rendezvous_point = endpoint_text(host_of(*options_.info), options_.info->port);
        if (contact_published_root(*options_.info, last)) return;
      } else if (options_.file.empty()) {
        mesh_.rendezvous_point = endpoint_text(options_.address, options_.port);
        if (contact_root(options_.address, options_.port, 0, last)) return;
      } else {
        mesh_.rendezvous_point = "file://" + options_.file;
        const std::optional<RendezvousInfo> info = read_rendezvous_info(options_.file);
        if (info && contact_published_root(*info, last)) return;
      }
      if (deadline_.passed())
        throw UnreachableError("rank {} on {}: rank 0 did not answer at {} within {:g} s ({})",
                               options_.rank,
                               host_name(),
                               mesh_.rendezvous_point,
                               options_.limits.rendezvous_s,
                               last);
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }

  bool contact_published_root(const RendezvousInfo& info, std::string& last) {
    if (!info.run.empty() && !options_.run.empty() && info.run != options_.run) {
      last = fmt::format("the file there is of run '{}'", info.run);
      return false;
    }
    std::string tried;
    for (const std::string& address : info.addresses) {
      if (contact_root(address, info.port, info.nonce, last)) return true;
      append_item(tried, last, "; ");
      if (deadline_.passed()) break;
    }
    last = tried;
    return false;
  }

  // Returns true if rank 0 of this run answers; otherwise sets `last` to the reason.
  bool contact_root(const std::string& address, int port, uint64_t nonce, std::string& last) {
    Notice notice;
    Socket socket;
    try {
      socket = connect_to(address, port, Deadline(kAttemptSeconds));
      listener_ = listen_beside(socket);
      const Hello hello = hello_of(options_, nonce, port_of(listener_));
      send_all(socket, &hello, sizeof(hello), Deadline(kAttemptSeconds));
      await_answer(socket, nonce);
      notice = receive_answer(socket, hello, options_.token, Deadline(kAnswerSeconds));
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

  // Listens at the address by which this rank has reached rank 0, as the others can reach it there.
  // If that is the loopback, listens at all addresses, unless all ranks are on this host.
  Socket listen_beside(const Socket& root) const {
    const std::vector<std::string> known = options_.info           ? options_.info->addresses
                                           : options_.file.empty() ? std::vector{options_.address}
                                                                   : std::vector<std::string>{};
    const bool all_here = !known.empty() && std::all_of(known.begin(), known.end(), is_loopback);
    const std::string address = own_address(root);
    return is_loopback(address) && !all_here ? listen_on(0) : listen_at(address, 0);
  }

  // Waits for rank 0's answer. An address from a file is tried only as long as the file is
  // unchanged: the program that uses it now may never answer.
  void await_answer(const Socket& socket, uint64_t nonce) {
    const Deadline deadline(std::min(kAnswerSeconds, options_.limits.rendezvous_s));
    while (!is_readable(socket, kLookMs)) {
      if (deadline.passed()) throw SocketError("no answer in time");
      if (!options_.file.empty()) {
        const std::optional<RendezvousInfo> info = read_rendezvous_info(options_.file);
        if (!info || info->nonce != nonce) throw SocketError("the rendezvous file has changed");
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

  // Throws SocketError with a message for people.
  void connect_to_peers() {
    for (int rank = 1; rank < options_.rank; ++rank) connect_below(rank);
    int missing = options_.size - 1 - options_.rank;
    HandshakeListener handshakes(listener_, options_.token);
    while (missing > 0) {
      std::optional<IncomingPeer> arrival = handshakes.next(last_deadline_.poll_ms(kLookMs));
      if (arrival && admit(*arrival)) --missing;
      if (is_readable(root()))
        await_root();  // before this rank has reported, that can only be a failure
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
      const Notice notice = receive_answer(socket, hello, options_.token, last_deadline_);
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

  bool admit(IncomingPeer& arrival) {
    const Hello& hello = arrival.hello;
    const bool expected = hello.nonce == nonce_ && mismatch(hello, options_).empty() &&
                          hello.rank > options_.rank &&
                          !mesh_.peers[static_cast<size_t>(hello.rank)].is_open();
    send_answer(arrival.socket, expected ? Answer::kWelcome : Answer::kStranger, nonce_, "");
    if (expected) mesh_.peers[static_cast<size_t>(hello.rank)] = std::move(arrival.socket);
    return expected;
  }

  // Waits for rank 0's notice; throws CommError if the run has failed.
  void await_root() {
    Notice notice;
    try {
      notice = receive_notice(root(), last_deadline_);
    } catch (const SocketError& error) {
      fail(lost_root(error));
    }
    if (notice.answer != Answer::kWelcome) fail(text_of(notice.text));
  }

  std::string lost_root(const SocketError& error) const {
    const std::string host = text_of(table_[0].host);  // empty until the table has come
    return fmt::format("lost rank 0 on {} before all ranks had come: {}",
                       host.empty() ? root_address_ : host,
                       error.what());
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

// A connection to every rank may need more descriptors than a process has by default.
void allow_descriptors(int ranks) {
  constexpr rlim_t kOthers = 512;  // files, and connections in progress
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, static_cast<rlim_t>(ranks) + kOthers);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Mesh join_as_worker(const TcpOptions& options) { return Worker(options).join(); }

Mesh join_mesh(const TcpOptions& options, Socket listener) {
  if (options.size == 1) {
    Mesh mesh;
    mesh.peers.resize(1);
    mesh.hosts.push_back(host_name());
    return mesh;
  }
  allow_descriptors(options.size);
  try {
    return options.rank == 0 ? receive_ranks(options, std::move(listener))
                             : join_as_worker(options);
  } catch (const SocketError& error) {
    throw CommError("rank {} on {}: {}", options.rank, host_name(), error.what());
  }
}

}  // namespace lockstep::collectives
