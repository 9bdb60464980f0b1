#pragma once
// The last part of the way of the data: from the loader to the ops.

#include <vector>

#include "runtime/data/loader.h"
#include "runtime/exec/backend.h"

namespace lockstep {

// Copies the batches of a rank's lanes to where the backend's ops read them: each lane always to
// the same place, and tells how long its samples are. A backend with memory of its own has room for a second batch of each lane, which
// comes while the first is in use. Without memory of its own it reads them where the loader put
// them.
class BatchStage {
 public:
  // Device bytes that `lanes` lanes' inputs and targets take.
  static size_t device_bytes(const Graph& graph, size_t lanes);

  // `device`: device_bytes(); null where the backend reads host memory. Borrowed.
  BatchStage(const Graph& graph, Backend& backend, std::byte* device, size_t lanes);

  // Queues the copy of lane `lane`'s batch; returns where it will be.
  LaneBatch place(size_t lane, const LaneBatch& batch);

  // The same for the loader's next batch of all lanes, in two halves. load() may be called while
  // queued work uses the batches taken before.
  void load(Loader& loader);
  bool loaded() const { return loaded_; }
  // What is loaded is not taken: its loader goes. Waits for the copies.
  void forget() {
    backend_.uploads().finish();
    loaded_ = false;
  }
  // Whether copying ahead is of use.
  bool ahead() const { return device_ != nullptr; }
  // Where the batches of all lanes will be once the work queued so far is done.
  const std::vector<LaneBatch>& take();

 private:
  LaneBatch measured(LaneBatch batch) const;
  std::byte* input_of(size_t lane) const { return device_ + lane * lane_bytes_; }

  Backend& backend_;
  std::byte* device_;
  Shape samples_;  // of tokens: (B, T), or (B, R, T) where they have documents
  size_t lanes_;
  size_t input_bytes_, target_bytes_, lane_bytes_, target_offset_;
  bool loaded_ = false;
  std::vector<LaneBatch> batches_;  // copied ahead, then taken
};

}  // namespace lockstep
