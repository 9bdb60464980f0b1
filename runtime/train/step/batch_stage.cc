#include "runtime/train/step/batch_stage.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::train {
namespace {

size_t aligned(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t input_bytes(const graph::Graph& graph, graph::GraphIn input) {
  return graph[graph.inputs[input]].bytes();
}

// Bytes of one lane's input and target.
size_t lane_bytes(const graph::Graph& graph) {
  return aligned(input_bytes(graph, graph::GraphIn::kInput)) +
         aligned(input_bytes(graph, graph::GraphIn::kTarget));
}

// Tokens of the longest sample, without the padding at its end. In samples (R, T), row 1 has the
// number of each token's document, -1 for padding (see packed_tokens.h).
int64_t longest_sample(const data::LaneBatch& batch, const Shape& samples) {
  const int64_t rows = samples[1], columns = samples[2];
  int64_t longest = 0;
  for (int64_t i = 0; i < batch.valid_samples; ++i) {
    const int32_t* documents =
        reinterpret_cast<const int32_t*>(batch.input) + (i * rows + 1) * columns;
    int64_t tokens = columns;
    while (tokens > longest && documents[tokens - 1] < 0) --tokens;
    longest = std::max(longest, tokens);
  }
  return longest;
}

}  // namespace

size_t BatchStage::device_bytes(const graph::Graph& graph, size_t lanes) {
  return (2 * lanes + (lanes > 1)) * lane_bytes(graph);
}

BatchStage::BatchStage(const graph::Graph& graph,
                       exec::Backend& backend,
                       std::byte* device,
                       size_t lanes)
    : backend_(backend),
      device_(device),
      lanes_(lanes),
      input_bytes_(input_bytes(graph, graph::GraphIn::kInput)),
      target_bytes_(input_bytes(graph, graph::GraphIn::kTarget)),
      lane_bytes_(lane_bytes(graph)),
      target_offset_(aligned(input_bytes_)),
      batches_(lanes) {
  const graph::Tensor& input = graph[graph.inputs[graph::GraphIn::kInput]];
  if (input.dtype == DType::kI32) samples_ = input.shape;
}

data::LaneBatch BatchStage::measured(data::LaneBatch batch) const {
  if (samples_.rank() == 3) batch.tokens = longest_sample(batch, samples_);
  return batch;
}

data::LaneBatch BatchStage::copy_lane(size_t lane, const data::LaneBatch& batch) {
  if (device_ == nullptr) return measured(batch);
  std::byte *const input = input_of(lane), *const target = input + target_offset_;
  backend_.copy(batch.input, input, input_bytes_);
  backend_.copy(batch.target, target, target_bytes_);
  return {input, target, batch.valid_samples, measured(batch).tokens};
}

void BatchStage::load(data::Loader& loader) {
  backend_.uploads().finish();  // the loader is about to overwrite their sources
  const data::LaneBatch* const batches = loader.next();
  for (size_t lane = 0; lane < lanes_; ++lane) batches_[lane] = measured(batches[lane]);
  loaded_ = true;
  if (device_ == nullptr) return;
  for (size_t lane = 0; lane < lanes_; ++lane) {
    std::byte* const input = input_of(lanes_ + lane);
    backend_.uploads().copy_ahead(batches[lane].input, input, input_bytes_);
    backend_.uploads().copy_ahead(batches[lane].target, input + target_offset_, target_bytes_);
  }
}

const std::vector<data::LaneBatch>& BatchStage::take() {
  LOCKSTEP_CHECK(loaded_);
  loaded_ = false;
  if (device_ == nullptr) return batches_;
  backend_.uploads().take(input_of(lanes_), device_, lanes_ * lane_bytes_);
  for (size_t lane = 0; lane < lanes_; ++lane) {
    batches_[lane].input = input_of(lane);
    batches_[lane].target = input_of(lane) + target_offset_;
  }
  return batches_;
}

data::LaneBatch BatchStage::copy_current(size_t lane) const {
  data::LaneBatch batch = batches_[lane];
  if (device_ == nullptr || lanes_ == 1) return batch;
  std::byte* const current = input_of(2 * lanes_);
  backend_.copy(batch.input, current, lane_bytes_);
  batch.input = current;
  batch.target = current + target_offset_;
  return batch;
}

}  // namespace lockstep::train
