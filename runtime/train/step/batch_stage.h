#pragma once
// The last stage of the data's way: from the loader to the ops.

#include <vector>

#include "runtime/data/loader.h"
#include "runtime/exec/backend.h"

namespace lockstep::train {

// Copies the batches of a rank's lanes to where the backend's ops read them, each lane always to
// the same address, and measures how long its samples are. On a backend with memory of its own,
// there is room for a second batch of each lane, which is copied while the first is in use, and for
// that of the current lane, at an address that all lanes have in turn. Otherwise the ops read the
// loader's memory directly.
class BatchStage {
 public:
  // Device bytes for the inputs and targets of `lanes` lanes.
  static size_t device_bytes(const graph::Graph& graph, size_t lanes);

  // `device`: device_bytes(), borrowed; null if the backend reads host memory.
  BatchStage(const graph::Graph& graph, exec::Backend& backend, std::byte* device, size_t lanes);

  // Queues the copy of lane `lane`'s batch; returns its destination.
  data::LaneBatch copy_lane(size_t lane, const data::LaneBatch& batch);

  // The same for the loader's next batch of all lanes, in two halves. load() may be called while
  // queued work still uses the batches taken before.
  void load(data::Loader& loader);
  bool loaded() const { return loaded_; }
  // Drops what was loaded but not taken, because its loader is being replaced. Waits for the
  // copies.
  void drop_loaded() {
    backend_.uploads().finish();
    loaded_ = false;
  }
  // Whether loading ahead overlaps with computation.
  bool ahead() const { return device_ != nullptr; }
  // Returns where the batches of all lanes will be once the work queued so far is done.
  const std::vector<data::LaneBatch>& take();
  // Queues the copy of a taken batch to the current lane's address; returns where it will be.
  data::LaneBatch copy_current(size_t lane) const;

 private:
  data::LaneBatch measured(data::LaneBatch batch) const;
  std::byte* input_of(size_t lane) const { return device_ + lane * lane_bytes_; }

  exec::Backend& backend_;
  std::byte* device_;
  Shape samples_;  // of tokens: (B, T), or (B, R, T) if samples are packed from documents
  size_t lanes_;
  size_t input_bytes_, target_bytes_, lane_bytes_, target_offset_;
  bool loaded_ = false;
  std::vector<data::LaneBatch> batches_;  // copied ahead, then taken
};

}  // namespace lockstep::train
