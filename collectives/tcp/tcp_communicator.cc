// Every two ranks have one connection, and every operation is a set of frames between pairs.
// Exchange and all-gather send each rank its part directly, which moves no more bytes than a ring.
// Reduce-scatter is an exchange and a local sum; broadcast uses a binomial tree.
//
// Nothing here blocks on one peer: all sockets are non-blocking, and a rank that waits for an
// operation moves bytes on every connection. So no order of sends can deadlock, and a peer that
// dies is noticed whichever peer is waited for.
#include "collectives/tcp/tcp_communicator.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/agree/watchdog_error.h"
#include "collectives/tcp/connection.h"
#include "collectives/tcp/rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

std::string name_of(int rank, const std::string& host) {
  return fmt::format("rank {} on {}", rank, host);
}

class TcpCommunicatorImpl final : public TcpCommunicator {
 public:
  TcpCommunicatorImpl(const TcpOptions& options, Mesh mesh)
      : rank_(options.rank), size_(options.size), timeout_s_(options.limits.operation_s) {
    rendezvous_point_ = mesh.rendezvous_point;
    own_name_ = name_of(rank_, host_name());
    connections_.reserve(mesh.peers.size());
    for (int r = 0; r < size_; ++r) {
      const auto i = static_cast<size_t>(r);
      connections_.emplace_back(
          std::move(mesh.peers[i]), r, name_of(r, mesh.hosts[i]), own_name_, outstanding_);
    }
    entries_.reserve(mesh.peers.size());
  }
  ~TcpCommunicatorImpl() override {
    const bool idle = std::all_of(
        operations_.begin(), operations_.end(), [](const Operation& o) { return !o.in_use; });
    if (idle) {
      constexpr double kPatienceSeconds = 10;
      close(FrameKind::kGoodbye, "", kPatienceSeconds);
    } else {
      abort("left an operation under way");
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "tcp"; }
  std::string library() const override {
    return size_ == 1 ? "TCP" : "TCP, rank 0 at " + rendezvous_point_;
  }

  int start_exchange(const SliceExchange& exchange) override {
    const int handle = take_handle();
    queue_pairs(FrameKind::kExchange,
                exchange.receive,
                exchange.bytes,
                exchange.group,
                exchange.counts,
                handle,
                [&](int to, size_t array) { return exchange.slice(to, array); });
    return started(handle);
  }

  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const RankGroup& group,
                       std::span<const int> counts) override {
    const int handle = take_handle();
    const std::byte* const mine = buffer + slots_before(counts, group.index_of(rank_)) * bytes;
    queue_pairs(FrameKind::kAllGather, buffer, bytes, group, counts, handle, [&](int, size_t k) {
      return mine + k * bytes;
    });
    return started(handle);
  }

  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    const int handle = take_handle();
    Operation& operation = operations_[static_cast<size_t>(handle)];
    operation.send = send;
    operation.receive = receive;
    operation.elements = elements;
    const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
    queue_pairs(FrameKind::kReduceScatter,
                reinterpret_cast<std::byte*>(receive),
                bytes,
                everyone(),
                {},
                handle,
                [&](int to, size_t) {
                  return reinterpret_cast<const std::byte*>(send) + static_cast<size_t>(to) * bytes;
                });
    return started(handle);
  }

  void progress() override { check(); }
  double timeout_s() const override {
    const bool files = reads_or_writes_files(FlightRecorder::here().phase());
    return files ? std::max(timeout_s_, files_timeout_s_) : timeout_s_;
  }
  void set_files_timeout_s(double seconds) override {
    files_timeout_s_ = seconds_or_never(seconds);
  }

  // A failure that another rank reports reaches this rank also while it waits for something else.
  void check() override {
    if (!failure_.empty()) throw CommError("{}", failure_);
    progress_all();
  }

  void wait(int handle) override {
    Operation& operation = operations_[static_cast<size_t>(handle)];
    finish(handle);
    if (operation.send != nullptr) sum_parts(operation);
    operation.send = nullptr;
    operation.in_use = false;
  }

  // Ranks are numbered from `root` on. Number n's parent is n with its lowest set bit cleared; its
  // children are n plus each power of two below that bit.
  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    const FrameHeader header = next_header(FrameKind::kBroadcast, bytes);
    const int number = (rank_ - root + size_) % size_;
    const auto rank_of = [&](int n) { return (n + root) % size_; };
    int bit = 1;
    for (; bit < size_ && (number & bit) == 0; bit *= 2) {
    }
    if (number != 0) {
      const int handle = take_handle();
      peer(rank_of(number - bit)).queue_receive(header, buffer, handle);
      wait(started(handle));
    }
    const int handle = take_handle();
    while ((bit /= 2) > 0) {
      if (number + bit < size_) peer(rank_of(number + bit)).queue_send(header, buffer, handle);
    }
    wait(started(handle));
  }

  void abort(const std::string& why) override {
    constexpr double kPatienceSeconds = 1;
    close(FrameKind::kAbort, own_name_ + ": " + why, kPatienceSeconds);
  }

  void report_failure(const std::string& error) override {
    constexpr double kPatienceSeconds = 1;
    if (closed_) return;
    read_lower_ranks();
    close(reported_ ? FrameKind::kAbort : FrameKind::kFailure, error, kPatienceSeconds);
  }

  bool another_rank_reports() const override { return reported_ || lower_rank_alive_; }

 private:
  struct Operation {
    bool in_use = false;
    FrameHeader header;
    // For a reduce-scatter: the caller's buffers. Every other rank's part for this rank arrives at
    // that rank's index in `receive`.
    const float* send = nullptr;
    float* receive = nullptr;
    int64_t elements = 0;
  };

  Connection& peer(int rank) { return connections_[static_cast<size_t>(rank)]; }

  template <typename Body>
  void for_each_peer(Body body) {
    for_each_partner(everyone(), rank_, body);
  }

  // Sends slice(i, k), for each k of this rank's count, to each other index i of the group, and
  // receives what those send.
  template <typename Slice>
  void queue_pairs(FrameKind kind,
                   std::byte* receive,
                   size_t bytes,
                   const RankGroup& group,
                   std::span<const int> counts,
                   int handle,
                   Slice slice) {
    const FrameHeader header = next_header(kind, bytes);
    const size_t mine = count_of(counts, group.index_of(rank_));
    for_each_partner(group, rank_, [&](int from, int to) {
      std::byte* const slots = receive + slots_before(counts, from) * bytes;
      for (size_t k = 0; k < count_of(counts, from); ++k)
        peer(group.rank_of(from)).queue_receive(header, slots + k * bytes, handle);
      for (size_t k = 0; k < mine; ++k)
        peer(group.rank_of(to)).queue_send(header, slice(to, k), handle);
    });
  }

  int take_handle() {
    if (!failure_.empty()) throw CommError("{}", failure_);
    for (int handle = 0; handle < kMaxPending; ++handle) {
      Operation& operation = operations_[static_cast<size_t>(handle)];
      if (operation.in_use) continue;
      operation.in_use = true;
      return handle;
    }
    LOCKSTEP_CHECK(false, "more than {} operations under way ", kMaxPending);
  }

  FrameHeader next_header(FrameKind kind, size_t bytes) {
    FrameHeader header;
    header.kind = kind;
    header.sequence = ++sequence_;
    header.bytes = bytes;
    latest_ = header;
    return header;
  }

  int started(int handle) {
    operations_[static_cast<size_t>(handle)].header = latest_;
    progress_all();
    return handle;
  }

  // Sums rank by rank into rank 0's part of `receive`, in an order that does not depend on who is
  // early.
  void sum_parts(const Operation& operation) const {
    const float* const own = operation.send + rank_ * operation.elements;
    if (rank_ == 0) std::copy_n(own, operation.elements, operation.receive);
    for (int r = 1; r < size_; ++r) {
      const float* const part = r == rank_ ? own : operation.receive + r * operation.elements;
      for (int64_t i = 0; i < operation.elements; ++i) operation.receive[i] += part[i];
    }
  }

  size_t progress_all() {
    size_t moved = 0;
    try {
      for_each_peer([&](int, int to) { moved += peer(to).progress(); });
    } catch (const ReportedError& error) {
      reported_ = true;
      fail(error.what());
    } catch (const CommError& error) {
      fail(error.what());
    }
    return moved;
  }

  void finish(int handle) {
    // A process that sleeps in poll() is slow to wake. So it polls for longer than a small message
    // takes, and than ranks usually wait for each other in a step, and yields the core meanwhile.
    constexpr double kSpinMs = 1;
    constexpr double kPatienceMs = 10'000;
    double last_progress = now_ms();
    while (outstanding_[static_cast<size_t>(handle)] > 0) {
      const double now = now_ms();
      if (progress_all() > 0) {
        last_progress = now;
        continue;
      }
      if (now - last_progress < kSpinMs) {
        sched_yield();
        continue;
      }
      if (now - last_progress > timeout_s() * 1000) fail(timeout_text(handle));
      if (now - last_progress > kPatienceMs) check_hosts();
      throw_watchdog_error();
      wait_for_peers();
    }
  }

  void check_hosts() {
    try {
      for_each_peer([&](int, int to) { peer(to).require_answering_host(); });
    } catch (const CommError& error) {
      fail(error.what());
    }
  }

  void wait_for_peers() {
    constexpr int kLookMs = 500;  // how soon a timeout is noticed
    entries_.clear();
    for_each_peer([&](int, int to) {
      const short events = peer(to).wanted_events();
      if (events != 0) entries_.push_back({peer(to).descriptor(), events, 0});
    });
    poll(entries_.data(), entries_.size(), std::min(kLookMs, static_cast<int>(timeout_s_ * 1000)));
  }

  std::string timeout_text(int handle) {
    std::string senders, receivers;
    for (int r = 0; r < size_; ++r) {
      const std::string& name = peer(r).name();
      if (peer(r).waits_to_receive(handle)) append_item(senders, name);
      if (peer(r).waits_to_send(handle)) append_item(receivers, name);
    }
    return fmt::format("{}: nothing moved for {:g} s in {}; {}{}{}{}",
                       own_name_,
                       timeout_s(),
                       text_of(operations_[static_cast<size_t>(handle)].header),
                       senders.empty() ? "" : "no bytes from " + senders,
                       !senders.empty() && !receivers.empty() ? "; " : "",
                       receivers.empty() ? "" : "none taken by " + receivers,
                       " (LOCKSTEP_COMM_TIMEOUT_S)");
  }

  // Reads what lower ranks have sent: the failure that was reported to this rank may be the
  // consequence of the end of one of them.
  void read_lower_ranks() {
    for (int r = 0; r < rank_; ++r) {
      try {
        if (!peer(r).has_reported_failure()) peer(r).progress();
      } catch (const ReportedError&) {
        reported_ = true;
      } catch (const CommError&) {
      }
      lower_rank_alive_ |= peer(r).is_open() || peer(r).has_reported_failure();
    }
  }

  // The others must not wait for this rank: reports the failure to them and closes the connections.
  [[noreturn]] void fail(const std::string& why) {
    report_failure(why);
    throw CommError("{}", why);
  }

  // Ends the stream to every rank, then reads until they have ended theirs or `patience_s` is over:
  // closing a socket with unread bytes would discard what was sent through it.
  void close(FrameKind kind, const std::string& failure, double patience_s) {
    if (closed_) return;
    closed_ = true;
    failure_ = failure;
    const Deadline deadline(patience_s);
    std::vector<Connection*> open;
    for_each_peer([&](int, int to) {
      peer(to).end_sending(kind, failure);
      open.push_back(&peer(to));
    });
    while (true) {
      std::erase_if(open, [](Connection* connection) { return connection->drain(); });
      if (open.empty() || deadline.passed()) break;
      std::vector<pollfd> entries;
      entries.reserve(open.size());
      for (const Connection* connection : open)
        entries.push_back({connection->descriptor(), POLLIN, 0});
      poll(entries.data(), entries.size(), deadline.poll_ms());
    }
    for (Connection& connection : connections_) connection.close();
  }

  int rank_, size_;
  double timeout_s_, files_timeout_s_ = 0;
  std::string own_name_, rendezvous_point_;
  std::vector<Connection> connections_;  // by rank; this rank's own is not open
  Connection::Outstanding outstanding_{};
  std::array<Operation, kMaxPending> operations_;
  std::vector<pollfd> entries_;
  uint64_t sequence_ = 0;
  FrameHeader latest_;
  std::string failure_;
  bool reported_ = false, lower_rank_alive_ = false;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<TcpCommunicator> make_tcp_communicator(const TcpOptions& options) {
  return std::make_unique<TcpCommunicatorImpl>(options, join_mesh(options));
}

std::unique_ptr<TcpCommunicator> make_tcp_communicator_over(Communicator& channel,
                                                            const TcpOptions& options) {
  return std::make_unique<TcpCommunicatorImpl>(options, join_mesh_over(channel, options));
}

}  // namespace lockstep::collectives
