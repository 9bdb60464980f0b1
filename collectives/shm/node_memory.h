#pragma once
// Memory that the ranks of one node share, and the signals by which they tell each other what lies
// in it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/shm/shared_mapping.h"
#include "collectives/topology.h"

namespace lockstep {

class NodeMemory {
 public:
  // Every rank counts its own.
  enum class Event { kGradients, kGradientsRead, kParameters };

  // All ranks of the run together; each node of `topology` makes its own. Null on every rank where
  // any of them cannot map what the others of its node have (another container, a /proc that hides
  // processes), and where nodes have one rank.
  static std::unique_ptr<NodeMemory> join(Communicator& communicator, const Topology& topology);
  ~NodeMemory();

  // This rank's number among those of the node, and how many they are.
  int index() const { return group_.index_of(communicator_.rank()); }
  int count() const { return group_.count; }

  // Takes `own` bytes for each rank and `common` bytes once for all of them. Called once, by all
  // ranks of the run together. Throws AgreedError on all of them where one has too little memory.
  void allocate(size_t own, size_t common);
  std::byte* piece(int index) const { return pieces_[static_cast<size_t>(index)].data(); }
  std::byte* own() const { return piece(index()); }
  std::byte* common() const { return common_.data(); }
  // own + common.
  size_t allocated_bytes() const { return pieces_.empty() ? 0 : own_bytes() + common_.bytes(); }

  // This rank has got to one more of these events: all that it has written before can be read by
  // those that have waited for it. Returns how many it has got to.
  uint32_t signal(Event event);
  // Returns when every rank of the node has got to `count` of them. Throws CommError where one of
  // them has ended, or does not get there in the communicator's time. `bytes`: of what they have
  // written, for the flight recorder.
  void wait(Event event, uint32_t count, size_t bytes = 0);

 private:
  static constexpr size_t kEvents = 3;
  struct Signal;

  NodeMemory(Communicator& communicator, const RankGroup& group);
  size_t own_bytes() const { return pieces_[static_cast<size_t>(index())].bytes(); }
  std::vector<SharedMapping> exchange(size_t bytes, const char* what);
  Signal& signal_of(int index, Event event) const;
  void wait_for(int index, Event event, uint32_t count) const;
  void look_after(int index, Event event, double waited_ms) const;

  Communicator& communicator_;
  RankGroup group_;
  bool crowded_ = false;                         // more ranks than CPUs
  std::vector<SharedMapping> signals_, pieces_;  // by index
  SharedMapping common_;
  std::vector<int> processes_;  // by index: descriptors that become readable when the rank ends
  uint32_t signalled_[kEvents] = {};
};

}  // namespace lockstep
