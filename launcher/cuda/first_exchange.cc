#include "launcher/cuda/first_exchange.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kBytes = 256;  // for each rank

}  // namespace

size_t first_exchange_bytes(int ranks) { return 2 * kBytes * static_cast<size_t>(ranks); }

void exchange_first(collectives::Communicator& slices,
                    CudaBackend& backend,
                    const collectives::Topology& topology,
                    std::byte* memory) {
  constexpr int64_t kFloats = kBytes / sizeof(float);
  std::byte* const send = memory;
  std::byte* const receive = memory + kBytes * static_cast<size_t>(slices.size());
  const auto wait = [&](int handle) { slices.wait(handle); };
  for (const collectives::RankGroup& group : topology.groups_of(slices.rank())) {
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
