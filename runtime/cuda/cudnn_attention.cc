#include "runtime/cuda/cudnn_attention.h"

#include "runtime/cuda/cudnn_graphs.h"

namespace lockstep::cuda {

struct CudnnAttention::Library : CudnnAttentionGraphs {
  using CudnnAttentionGraphs::CudnnAttentionGraphs;
};

CudnnAttention::CudnnAttention(Stream stream) {
  try {
    library_ = std::make_unique<Library>(stream);
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
}

CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const AttentionShape& shape, DType dtype) {
  if (!library_ || dtype == DType::kF32) return false;
  AttentionShape part = shape;
  part.batch = cudnn_backward_batch(shape);
  for (const CudnnAttentionKey& key :
       {CudnnAttentionKey{shape, dtype, false}, CudnnAttentionKey{part, dtype, true}}) {
    const std::string& refusal = library_->refusal(key);
    if (refusal.empty()) continue;
    why_not_ = refusal;
    return false;
  }
  return true;
}

void CudnnAttention::run(const CudnnAttentionKey& key,
                         const CudnnAttentionArrays& arrays,
                         void* workspace) {
  library_->run(key, arrays, workspace);
}

namespace {

size_t up(int64_t n, int64_t unit) { return static_cast<size_t>((n + unit - 1) / unit * unit); }

// The gradient of the scores in 16 bits, in whole tiles: what the fixed order of the sums costs.
size_t score_bytes(const AttentionShape& shape, int64_t batch) {
  return 2 * static_cast<size_t>(batch * shape.heads) * up(shape.time, 64) * up(shape.time, 128);
}

}  // namespace

int64_t cudnn_backward_batch(const AttentionShape& shape) {
  constexpr size_t kMost = size_t{1} << 30;
  int64_t batch = shape.batch;
  while (batch > 1 && (shape.batch % batch != 0 || score_bytes(shape, batch) > kMost)) --batch;
  return batch;
}

size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key) {
  constexpr size_t kSlack = size_t{1} << 20;
  if (!key.backward) return kSlack;
  const AttentionShape& s = key.shape;
  const size_t sums = static_cast<size_t>(s.batch * s.heads) * up(s.time, 128) * sizeof(float);
  return score_bytes(s, s.batch) + sums + kSlack;
}

std::string cudnn_attention_refusal(const CudnnAttentionKey& key,
                                    int sm,
                                    const std::string& device_json) {
  return CudnnAttentionGraphs::refusal_on_described_gpu(key, sm, device_json);
}

}  // namespace lockstep::cuda
