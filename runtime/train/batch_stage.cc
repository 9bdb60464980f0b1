#include "runtime/train/batch_stage.h"

namespace lockstep {
namespace {

size_t aligned(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t input_bytes(const Graph& graph, size_t index) { return graph[graph.inputs[index]].bytes(); }

}  // namespace

size_t BatchStage::bytes_per_lane(const Graph& graph) {
  return aligned(input_bytes(graph, 0)) + aligned(input_bytes(graph, 1));
}

BatchStage::BatchStage(const Graph& graph, Backend& backend, std::byte* device)
    : backend_(backend),
      device_(device),
      input_bytes_(input_bytes(graph, 0)),
      target_bytes_(input_bytes(graph, 1)),
      lane_bytes_(bytes_per_lane(graph)),
      target_offset_(aligned(input_bytes_)) {}

LaneBatch BatchStage::place(size_t lane, const LaneBatch& batch) {
  if (device_ == nullptr) return batch;
  std::byte* const input = device_ + lane * lane_bytes_;
  std::byte* const target = input + target_offset_;
  backend_.copy(batch.input, input, input_bytes_);
  backend_.copy(batch.target, target, target_bytes_);
  return {input, target, batch.valid_samples};
}

}  // namespace lockstep
