#pragma once
// A communicator that does what another one does, and shows a test what has come, before the run
// sees it.

#include <functional>

#include "collectives/communicator.h"

namespace lockstep::testing {

// For communicators whose operations complete where they start.
class HookedCommunicator final : public collectives::Communicator {
 public:
  explicit HookedCommunicator(collectives::Communicator& inner) : inner_(inner) {}

  // Called with the slot of index `from` of the group, of what an exchange or an all-gather has
  // brought; not with this rank's own.
  using Arrival = std::function<void(int from, std::byte* slot, size_t bytes)>;
  Arrival on_exchanged, on_gathered;

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const char* name() const override { return inner_.name(); }
  int start_exchange(const collectives::SliceExchange& exchange) override {
    const int handle = inner_.start_exchange(exchange);
    show(on_exchanged, exchange.receive, exchange.bytes, exchange.group, exchange.counts);
    return handle;
  }
  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const collectives::RankGroup& group,
                       std::span<const int> counts) override {
    const int handle = inner_.start_all_gather(buffer, bytes, group, counts);
    show(on_gathered, buffer, bytes, group, counts);
    return handle;
  }
  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    return inner_.start_reduce_scatter(send, receive, elements);
  }
  void wait(int handle) override { inner_.wait(handle); }
  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    inner_.broadcast(buffer, bytes, root);
  }

 private:
  void show(const Arrival& told,
            std::byte* slots,
            size_t bytes,
            const collectives::RankGroup& group,
            std::span<const int> counts) const {
    for (int i = 0; told && i < group.count; ++i) {
      if (i == group.index_of(rank())) continue;
      for (size_t k = 0; k < count_of(counts, i); ++k)
        told(i, slots + (slots_before(counts, i) + k) * bytes, bytes);
    }
  }
  collectives::Communicator& inner_;
};

}  // namespace lockstep::testing
