#pragma once
// What every communicator must do, for programs that are started as ranks.

#include <cstdio>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep::testing {

inline int failures = 0;

inline void expect(bool good, const char* what, size_t bytes, int rank) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "rank %d: %s of %zu bytes is wrong\n", rank, what, bytes);
}

inline std::byte pattern(int from, int to, size_t index) {
  return static_cast<std::byte>(from * 31 + to * 7 + static_cast<int>(index % 251) * 3);
}

// Sends `bytes` to each rank in every way there is.
inline void check_bytes(collectives::Communicator& communicator, size_t bytes) {
  const int ranks = communicator.size(), me = communicator.rank();
  const size_t whole = bytes * static_cast<size_t>(ranks);
  std::vector<std::byte> send(whole), receive(whole, std::byte{99}), gathered(whole);
  for (size_t i = 0; i < whole; ++i) send[i] = pattern(me, static_cast<int>(i / bytes), i % bytes);
  for (size_t i = 0; i < bytes; ++i)
    gathered[static_cast<size_t>(me) * bytes + i] = pattern(me, 0, i);
  const int exchange =
      communicator.start_exchange({send.data(), receive.data(), bytes, communicator.everyone()});
  const int gather = communicator.start_all_gather(gathered.data(), bytes, communicator.everyone());
  communicator.wait(exchange);
  communicator.wait(gather);
  bool exchange_good = true, gather_good = true, broadcast_good = true;
  for (size_t i = 0; i < whole; ++i) {
    const int from = static_cast<int>(i / bytes);
    exchange_good &= receive[i] == (from == me ? std::byte{99} : pattern(from, me, i % bytes));
    gather_good &= gathered[i] == pattern(from, 0, i % bytes);
  }
  for (int root = 0; root < ranks; ++root) {
    std::vector<std::byte> buffer(bytes, static_cast<std::byte>(me));
    communicator.broadcast(buffer.data(), bytes, root);
    for (const std::byte byte : buffer) broadcast_good &= byte == static_cast<std::byte>(root);
  }
  expect(exchange_good, "exchange", bytes, me);
  expect(gather_good, "all-gather", bytes, me);
  expect(broadcast_good, "broadcast", bytes, me);
}

// Small whole numbers: their float sums are exact.
inline void check_sums(collectives::Communicator& communicator, int64_t elements) {
  const int ranks = communicator.size(), me = communicator.rank();
  const auto value = [](int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 97)); };
  std::vector<float> send(static_cast<size_t>(elements * ranks)), receive(send.size());
  for (size_t i = 0; i < send.size(); ++i) send[i] = value(me, static_cast<int64_t>(i));
  communicator.wait(communicator.start_reduce_scatter(send.data(), receive.data(), elements));
  bool good = true;
  for (int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, me * elements + i);
    good &= receive[static_cast<size_t>(i)] == sum;
  }
  expect(good, "reduce-scatter", static_cast<size_t>(elements) * sizeof(float), me);
}

}  // namespace lockstep::testing
