#pragma once
// Messages among the ranks of a run. Every rank calls the same operations in the same order with
// the same sizes. A blocking operation returns once the caller may use its buffers again. A started
// operation owns its buffers until wait(). A failure throws CommError; afterwards the communicator
// can only be aborted.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/layout/topology.h"

namespace lockstep::collectives {

// Slices of `bytes` that the ranks of a group send each other. Index i offers counts[i] arrays, or
// one if there are no counts, of which this rank's are `stride` bytes apart from `send` on. Slice i
// of each array, array + i * bytes, goes to index i. The slices for this rank arrive in `receive`
// one after the other, those of index 0 first; the slots of its own are not written.
struct SliceExchange {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t bytes = 0;
  RankGroup group = {};
  std::span<const int> counts = {};
  size_t stride = 0;

  const std::byte* slice(int index, size_t array) const {
    return send + array * stride + static_cast<size_t>(index) * bytes;
  }
};

class Communicator {
 public:
  // Limit of the operations that are started and not yet waited for: exchanges of gradients,
  // gathers of parameters, and what a step's lanes exchange meanwhile.
  static constexpr int kMaxPending = 64;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;

  RankGroup everyone() const { return {0, 1, size()}; }

  // The next two operations run among the ranks of a group that includes this one. Every rank calls
  // them with a group of the same size, and different groups do not overlap. Slots are numbered by
  // the index in the group; `me` is this rank's index. Lists are borrowed until wait().
  //
  // Starts an exchange. Returns a handle.
  virtual int start_exchange(const SliceExchange& exchange) = 0;
  // Starts an in-place all-gather of slots of `bytes`, one after the other: counts[i] of index i,
  // or one of each without `counts`. Returns a handle.
  virtual int start_all_gather(std::byte* buffer,
                               size_t bytes,
                               const RankGroup& group,
                               std::span<const int> counts = {}) = 0;
  // Starts a sum over ranks, in an order that the library chooses: rank r receives the sum of all
  // ranks' send + r * elements, in the first `elements` of `receive`. `receive` must have room for
  // the parts of all ranks, size() * elements, which an implementation may use meanwhile. Returns a
  // handle.
  virtual int start_reduce_scatter(const float* send, float* receive, int64_t elements) = 0;
  // Completes a started operation.
  virtual void wait(int handle) = 0;

  virtual void broadcast(std::byte* buffer, size_t bytes, int root) = 0;

  // The bucket of the operations that follow, for reports of how far a device is; -1: none.
  virtual void set_bucket(int /*bucket*/) {}

  // Moves operations in flight, without waiting. For communicators that move nothing by themselves
  // while the caller computes.
  virtual void progress() {}

  // The time in seconds that an operation may currently wait without progress; 0: no limit.
  virtual double timeout_s() const { return 0; }
  // From now on timeout_s() is at least `seconds` while the flight recorder is in a phase in which
  // ranks read or write files; 0: no limit.
  virtual void set_files_timeout_s(double /*seconds*/) {}

  // Throws CommError if an operation in flight has failed or timed out. On a device operations are
  // only queued; so whoever waits for the device calls this repeatedly. Must not be called while a
  // stream is captured.
  virtual void check() {}

  void all_gather(std::byte* buffer, size_t bytes, std::span<const int> counts = {}) {
    wait(start_all_gather(buffer, bytes, everyone(), counts));
  }

 protected:
  // The count of index i; one if `counts` is empty.
  static size_t count_of(std::span<const int> counts, int i) {
    return counts.empty() ? 1 : static_cast<size_t>(counts[static_cast<size_t>(i)]);
  }
  // How many slots those of index i follow.
  static size_t slots_before(std::span<const int> counts, int i) {
    size_t before = 0;
    for (int j = 0; j < i; ++j) before += count_of(counts, j);
    return before;
  }
};

// The communicator of a run with one rank: every operation is complete at once.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep::collectives
