#pragma once

#include "runtime/data/loader.h"
#include "runtime/exec/backend.h"

namespace lockstep {

// Brings the batches of a rank's lanes to where the backend's ops read them: each lane always to
// the same place. Without memory of its own the backend reads them where the loader put them.
class BatchStage {
 public:
  // Device bytes that one lane's input and target take.
  static size_t bytes_per_lane(const Graph& graph);

  // `device`: bytes_per_lane() for each lane; null where the backend reads host memory. Borrowed.
  BatchStage(const Graph& graph, Backend& backend, std::byte* device);

  // Queues the copy of lane `lane`'s batch; returns where it will be.
  LaneBatch place(size_t lane, const LaneBatch& batch);

 private:
  Backend& backend_;
  std::byte* device_;
  size_t input_bytes_, target_bytes_, lane_bytes_, target_offset_;
};

}  // namespace lockstep
