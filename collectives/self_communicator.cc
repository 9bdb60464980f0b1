#include <cstring>

#include "collectives/communicator.h"

namespace lockstep::collectives {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* name() const override { return "self"; }
  int start_exchange(const SliceExchange&) override { return 0; }
  int start_all_gather(std::byte*, size_t, const RankGroup&, std::span<const int>) override {
    return 0;
  }
  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    if (send != receive) std::memmove(receive, send, static_cast<size_t>(elements) * sizeof(float));
    return 0;
  }
  void wait(int) override {}
  void broadcast(std::byte*, size_t, int) override {}
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace lockstep::collectives
