#pragma once
// What the ranks of a run say to each other. Every rank calls the same operations in the same order
// with the same sizes. Blocking operations return when the caller's buffers may be used again. A
// started operation owns its buffers until wait(). A failure throws CommError; after one the
// communicator can only be aborted.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/topology.h"

namespace lockstep {

class Communicator {
 public:
  // Operations that may be started and not yet waited for: exchanges of gradients, gathers of
  // parameters, and what the lanes of a step say to each other meanwhile.
  static constexpr int kMaxPending = 64;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;

  RankGroup everyone() const { return {0, 1, size()}; }

  // The next two are between the ranks of a group, which this one belongs to; every rank calls them
  // with a group of as many, and no two of these groups overlap. Slots are numbered by the index in
  // the group; me is this rank's.
  //
  // Starts an exchange of slices: for every other index i,
  //   send + i * bytes  goes to i's  receive + me * bytes.
  // The slot receive + me * bytes of this rank is left alone. Returns a handle.
  virtual int start_exchange(const std::byte* send,
                             std::byte* receive,
                             size_t bytes,
                             const RankGroup& group) = 0;
  // Starts an in-place all-gather: the slot of index i is buffer + i * bytes. Returns a handle.
  virtual int start_all_gather(std::byte* buffer, size_t bytes, const RankGroup& group) = 0;
  // Starts a sum over ranks, in an order that the library chooses: rank r receives the sum of what
  // all ranks have at send + r * elements. `receive` has room for the parts of all ranks,
  // size() * elements, which may lie there meanwhile; the sum is what the first elements then are.
  virtual int start_reduce_scatter(const float* send, float* receive, int64_t elements) = 0;
  // Completes a started operation.
  virtual void wait(int handle) = 0;

  virtual void broadcast(std::byte* buffer, size_t bytes, int root) = 0;

  // Moves what is under way, without waiting, where nothing else does so while the caller computes.
  virtual void progress() {}

  // Seconds that an operation may wait, now, for a rank that moves nothing; 0: for ever.
  virtual double timeout_s() const { return 0; }
  // So long it may wait at least while the flight recorder has a phase in which ranks read or write
  // files; 0: for ever.
  virtual void set_files_timeout_s(double /*seconds*/) {}

  // Throws CommError if an operation under way has failed or taken too long. On a device operations
  // are only queued: whoever waits for the device calls this again and again meanwhile. Not while a
  // stream is captured.
  virtual void check() {}

  void all_gather(std::byte* buffer, size_t bytes) {
    wait(start_all_gather(buffer, bytes, everyone()));
  }
};

// The communicator of a run with one rank: every operation is already done.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep
