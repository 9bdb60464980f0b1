#pragma once
// Memory that the ranks of one node share, and the events by which they signal what can be read in
// it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"
#include "collectives/shm/shared_mapping.h"

namespace lockstep::collectives {

class NodeMemory {
 public:
  // Every rank counts its own events.
  enum class Event { kGradients, kGradientsRead, kParameters, kMessages };

  // Collective over all ranks of the run; each node of `topology` makes its own memory. Returns
  // null on every rank if any rank cannot map the memory of the others of its node (another
  // container, a /proc that hides processes), or if nodes have one rank.
  static std::unique_ptr<NodeMemory> join(Communicator& communicator, const Topology& topology);
  ~NodeMemory();

  // This rank's index among the ranks of the node, and their number.
  int index() const { return group_.index_of(communicator_.rank()); }
  int count() const { return group_.count; }

  // Allocates `own` bytes for each rank and `common` bytes once for all of them. `written` has the
  // byte ranges of the common memory that this rank writes in each step: they lie in its NUMA
  // domain, up to huge pages that it shares with other ranks. Called once, by all ranks of the run.
  // Throws AgreedError on all of them if one has too little memory.
  void allocate(size_t own, size_t common, std::span<const Range> written = {});
  std::byte* piece(int index) const { return pieces_[static_cast<size_t>(index)].data(); }
  std::byte* own() const { return piece(index()); }
  std::byte* common() const { return common_.data(); }
  // Allocates a message of `bytes` for each rank, beside what allocate() does. Called by all ranks
  // of the run. Throws AgreedError on all of them if one has too little memory.
  void allocate_messages(size_t bytes);
  // In-place all-gather of the messages, one after the other by index, among the ranks of the node.
  // Throws CommError as wait() does.
  void all_gather_messages(std::byte* buffer);
  // own + common.
  size_t allocated_bytes() const { return pieces_.empty() ? 0 : own_bytes() + common_.bytes(); }

  // This rank has reached one more event of this kind: everything that it has written before can be
  // read by ranks that have waited for it. Returns the number of its events of this kind.
  uint32_t signal(Event event);
  // Returns once every rank of the node has reached `count` events. Throws CommError if one of them
  // has ended, or does not get there within the communicator's timeout. `bytes` is the size of what
  // they have written, for the flight recorder.
  void wait(Event event, uint32_t count, size_t bytes = 0);

 private:
  static constexpr size_t kEvents = 4;
  struct Signal;

  NodeMemory(Communicator& communicator, const RankGroup& group);
  size_t own_bytes() const { return pieces_[static_cast<size_t>(index())].bytes(); }
  std::vector<SharedMapping> exchange(size_t bytes, const char* what);
  std::vector<SharedMapping> map_all(SharedMapping mine);
  Signal& signal_of(int index, Event event) const;
  void wait_for(int index, Event event, uint32_t count) const;
  void require_live_peer(int index, Event event, double waited_ms) const;

  Communicator& communicator_;
  RankGroup group_;
  bool oversubscribed_ = false;                  // more ranks than CPUs
  std::vector<SharedMapping> signals_, pieces_;  // by index
  SharedMapping common_;
  std::vector<int> processes_;  // by index: pidfds, which become readable when the process ends
  std::vector<SharedMapping> messages_;  // by index: two copies, used in turn
  size_t message_bytes_ = 0;
  uint32_t signalled_[kEvents] = {};
};

}  // namespace lockstep::collectives
