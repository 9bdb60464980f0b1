// Every operation is non-blocking MPI, so that several buckets can be in flight. wait() polls
// MPI_Testall; after a short spin it yields the core, for machines with more ranks than cores.
#include "collectives/mpi/mpi_communicator.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string>
#include <vector>

#include "collectives/agree/watchdog_error.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

constexpr double kReasonS = 0.5;

void check_mpi(int code, const char* expression, int rank) {
  if (code == MPI_SUCCESS) return;
  await_watchdog_error(kReasonS);  // it may know the cause
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError("rank {}: {} failed: {}", rank, expression, text);
}
#define LOCKSTEP_MPI(call) check_mpi((call), #call, rank_)

int int_of(size_t count) {
  LOCKSTEP_CHECK(count <= INT_MAX, "message of {} elements ", count);
  return static_cast<int>(count);
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(size_t piece_bytes, double timeout_s)
      : piece_bytes_(piece_bytes), timeout_s_(timeout_s) {
    LOCKSTEP_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    LOCKSTEP_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    // MPI calls the error handler of MPI_COMM_WORLD for operations that it builds from smaller
    // ones.
    LOCKSTEP_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    LOCKSTEP_MPI(MPI_Comm_rank(comm_, &rank_));
    LOCKSTEP_MPI(MPI_Comm_size(comm_, &size_));
    for (auto& requests : pending_) requests.reserve(2 * static_cast<size_t>(size_));
  }
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "mpi"; }
  double timeout_s() const override { return timeout_s_; }

  int start_exchange(const SliceExchange& exchange) override {
    return start_pairs(exchange.group,
                       exchange.receive,
                       exchange.bytes,
                       exchange.counts,
                       [&](int to, size_t array) { return exchange.slice(to, array); });
  }

  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const RankGroup& group,
                       std::span<const int> counts) override {
    if (group != everyone() || bytes > piece_bytes_ || !counts.empty()) {
      const std::byte* const mine = buffer + slots_before(counts, group.index_of(rank_)) * bytes;
      return start_pairs(
          group, buffer, bytes, counts, [&](int, size_t slot) { return mine + slot * bytes; });
    }
    const int handle = take_handle();
    LOCKSTEP_MPI(MPI_Iallgather(MPI_IN_PLACE,
                                0,
                                MPI_DATATYPE_NULL,
                                buffer,
                                int_of(bytes),
                                MPI_BYTE,
                                comm_,
                                &pending_[static_cast<size_t>(handle)].emplace_back()));
    return handle;
  }

  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    LOCKSTEP_CHECK(elements * size_ <= kMpiMaxSummedElements);
    const int handle = take_handle();
    LOCKSTEP_MPI(MPI_Ireduce_scatter_block(send,
                                           receive,
                                           int_of(static_cast<size_t>(elements)),
                                           MPI_FLOAT,
                                           MPI_SUM,
                                           comm_,
                                           &pending_[static_cast<size_t>(handle)].emplace_back()));
    return handle;
  }

  void wait(int handle) override {
    auto& requests = pending_[static_cast<size_t>(handle)];
    finish(requests);
    requests.clear();
    --under_way_;
  }

  void progress() override {
    if (under_way_ == 0) return;
    for (auto& requests : pending_) {
      if (!requests.empty()) test(requests);
    }
  }

  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    for (size_t done = 0; done < bytes; done += piece_bytes_) {
      const size_t piece = std::min(piece_bytes_, bytes - done);
      const int handle = take_handle();
      LOCKSTEP_MPI(MPI_Ibcast(buffer + done,
                              int_of(piece),
                              MPI_BYTE,
                              root,
                              comm_,
                              &pending_[static_cast<size_t>(handle)].emplace_back()));
      wait(handle);
    }
  }

 private:
  // Sends slice(i, k), for each k of this rank's count, to each other index i of the group, and
  // receives what those send. Pieces between two ranks arrive in the order in which they are sent.
  template <typename Slice>
  int start_pairs(const RankGroup& group,
                  std::byte* receive,
                  size_t bytes,
                  std::span<const int> counts,
                  Slice slice) {
    const int handle = take_handle();
    auto& requests = pending_[static_cast<size_t>(handle)];
    const auto in_pieces = [&](auto start) {
      for (size_t done = 0; done < bytes; done += piece_bytes_)
        start(done, int_of(std::min(piece_bytes_, bytes - done)), &requests.emplace_back());
    };
    const size_t mine = count_of(counts, group.index_of(rank_));
    for_each_partner(group, rank_, [&](int from, int to) {
      for (size_t k = 0; k < count_of(counts, from); ++k) {
        std::byte* const slot = receive + (slots_before(counts, from) + k) * bytes;
        in_pieces([&](size_t at, int piece, MPI_Request* request) {
          LOCKSTEP_MPI(
              MPI_Irecv(slot + at, piece, MPI_BYTE, group.rank_of(from), handle, comm_, request));
        });
      }
      for (size_t k = 0; k < mine; ++k) {
        const std::byte* const sent = slice(to, k);
        in_pieces([&](size_t at, int piece, MPI_Request* request) {
          LOCKSTEP_MPI(
              MPI_Isend(sent + at, piece, MPI_BYTE, group.rank_of(to), handle, comm_, request));
        });
      }
    });
    return handle;
  }

  int take_handle() {
    for (int handle = 0; handle < kMaxPending; ++handle) {
      if (!pending_[static_cast<size_t>(handle)].empty()) continue;
      ++under_way_;
      return handle;
    }
    LOCKSTEP_CHECK(false, "more than {} operations under way ", kMaxPending);
  }

  // Whether all requests are complete.
  bool test(std::vector<MPI_Request>& requests) {
    int done = 0;
    LOCKSTEP_MPI(MPI_Testall(
        static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  }

  void finish(std::vector<MPI_Request>& requests) {
    constexpr int kSpins = 2000;  // some tens of microseconds: longer than a small message takes
    double begin_ms = 0;
    for (int spin = 0; !test(requests); ++spin) {
      if (spin <= kSpins) continue;
      throw_watchdog_error();
      if (begin_ms == 0) begin_ms = now_ms();
      if (timeout_s_ > 0 && now_ms() - begin_ms > timeout_s_ * 1000)
        throw CommError("rank {}: an MPI operation has not ended after {:g} s", rank_, timeout_s_);
      sched_yield();
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  size_t piece_bytes_;
  double timeout_s_;
  std::array<std::vector<MPI_Request>, kMaxPending> pending_;
  int under_way_ = 0;  // operations that are started and not yet waited for
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(size_t piece_bytes, double timeout_s) {
  return std::make_unique<MpiCommunicator>(piece_bytes, timeout_s);
}

}  // namespace lockstep::collectives
