#include "launcher/cuda/first_exchange.h"

#include "runtime/cuda/memory.h"

namespace lockstep::cuda {

void exchange_first(Communicator& slices, CudaBackend& backend, const Topology& topology) {
  constexpr size_t kBytes = 256;  // of one rank
  constexpr int64_t kFloats = kBytes / sizeof(float);
  const size_t all = kBytes * static_cast<size_t>(slices.size());
  DeviceArena memory;
  memory.reserve(2 * all, backend.stream());
  std::byte* const send = memory.take(all, "what is sent");
  std::byte* const receive = memory.take(all, "what is received");
  const auto wait = [&](int handle) { slices.wait(handle); };
  for (const RankGroup& group : topology.groups_of(slices.rank())) {
    wait(slices.start_exchange(send, receive, kBytes, group));
    wait(slices.start_all_gather(receive, kBytes, group));
  }
  wait(slices.start_all_gather(receive, kBytes, slices.everyone()));
  wait(slices.start_reduce_scatter(
      reinterpret_cast<const float*>(send), reinterpret_cast<float*>(receive), kFloats));
  slices.broadcast(receive, kBytes, 0);
  backend.synchronize();
}

}  // namespace lockstep::cuda
