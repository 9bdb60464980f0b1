#include "runtime/cuda/cudnn/cudnn_attention.h"

#include <string>
#include <utility>

#include "runtime/cuda/cudnn/cudnn_graphs.h"

namespace lockstep::cuda {

struct CudnnAttention::Library : CudnnAttentionGraphs {
  using CudnnAttentionGraphs::CudnnAttentionGraphs;
  const int version = std::stoi(cudnn_version());  // valid, because graphs exist only with cuDNN
};

CudnnAttention::CudnnAttention(Stream stream) : stream_(stream) {}

CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const graph::AttentionShape& shape, DType dtype, bool padded) {
  if (dtype == DType::kF32) return false;
  graph::AttentionShape part = shape;
  part.batch = cudnn_backward_batch(shape);
  try {
    if (!library_) library_ = std::make_unique<Library>(stream_);
  } catch (const std::exception& error) {
    why_not_ = error.what();
    return false;
  }
  if (!fits_cudnn_workspace(shape, padded, library_->version, why_not_)) return false;
  if (std::string limit = cudnn_backward_limit(shape, library_->sm(), library_->version);
      !limit.empty()) {
    why_not_ = std::move(limit);
    return false;
  }
  for (const CudnnAttentionKey& key : {CudnnAttentionKey{shape, dtype, /*backward=*/false, padded},
                                       CudnnAttentionKey{part, dtype, /*backward=*/true, padded}}) {
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

}  // namespace lockstep::cuda
