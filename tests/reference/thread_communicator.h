#pragma once
// Ranks as threads of one process: a Communicator over shared memory for tests.

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep::testing {

// What the ranks of one run share: the buffers of the operation under way.
struct ThreadWorld {
  explicit ThreadWorld(int ranks)
      : size(ranks), barrier(ranks), send(static_cast<size_t>(ranks)), strides(send.size()) {}
  int size;
  std::barrier<> barrier;
  std::vector<const std::byte*> send;
  std::vector<size_t> strides;
};

// Operations complete in start_*; wait() has nothing left to do.
class ThreadCommunicator final : public collectives::Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size; }
  const char* name() const override { return "threads"; }

  int start_exchange(const collectives::SliceExchange& exchange) override {
    world_.strides[static_cast<size_t>(rank_)] = exchange.stride;
    return meet(exchange.send, [&] {
      each_other(exchange.group, [&](int me, int i) {
        const int rank = exchange.group.rank_of(i);
        const size_t apart = world_.strides[static_cast<size_t>(rank)];
        for (size_t k = 0; k < count_of(exchange.counts, i); ++k)
          std::memcpy(exchange.receive + (slots_before(exchange.counts, i) + k) * exchange.bytes,
                      peer(rank) + k * apart + slot(me, exchange.bytes),
                      exchange.bytes);
      });
    });
  }
  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const collectives::RankGroup& group,
                       std::span<const int> counts) override {
    return meet(buffer, [&] {
      each_other(group, [&](int, int i) {
        const size_t at = slots_before(counts, i) * bytes;
        std::memcpy(buffer + at, peer(group.rank_of(i)) + at, count_of(counts, i) * bytes);
      });
    });
  }
  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    return meet(reinterpret_cast<const std::byte*>(send), [&] {
      for (int64_t i = 0; i < elements; ++i) {
        receive[i] = 0;
        for (int r = 0; r < world_.size; ++r)
          receive[i] += reinterpret_cast<const float*>(peer(r))[rank_ * elements + i];
      }
    });
  }
  void wait(int) override {}
  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    meet(buffer, [&] {
      if (rank_ != root) std::memcpy(buffer, peer(root), bytes);
    });
  }

 private:
  template <typename F>
  void each_other(const collectives::RankGroup& group, F f) {
    for (int i = 0; i < group.count; ++i) {
      if (group.rank_of(i) != rank_) f(group.index_of(rank_), i);
    }
  }
  template <typename Copy>
  int meet(const std::byte* mine, Copy copy) {
    world_.send[static_cast<size_t>(rank_)] = mine;
    world_.barrier.arrive_and_wait();
    copy();
    world_.barrier.arrive_and_wait();
    return 0;
  }
  const std::byte* peer(int r) const { return world_.send[static_cast<size_t>(r)]; }
  static size_t slot(int r, size_t bytes) { return static_cast<size_t>(r) * bytes; }

  ThreadWorld& world_;
  int rank_;
};

// Runs body(communicator) on `ranks` threads; rethrows the first exception of the lowest rank.
inline void run_ranks(int ranks, const std::function<void(collectives::Communicator&)>& body) {
  ThreadWorld world(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(world, rank);
      try {
        body(communicator);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        world.barrier.arrive_and_drop();  // the others must not wait for this rank
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep::testing
