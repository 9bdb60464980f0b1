// Replaces cudnn_attention.cc in builds without cudnn-frontend.
#include "runtime/base/error.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"
#include "runtime/cuda/cudnn/cudnn_missing.h"

namespace lockstep::cuda {

struct CudnnAttention::Library {};

CudnnAttention::CudnnAttention(Stream stream) : stream_(stream), why_not_(kCudnnMissing) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const AttentionShape&, DType) { return false; }

void CudnnAttention::run(const CudnnAttentionKey&, const CudnnAttentionArrays&, void*) {
  LOCKSTEP_CHECK(false, "this build has no cuDNN");
}

CudnnAnswer cudnn_answer(const CudnnAttentionKey&, const DescribedGpu&, const CudnnQuestion&) {
  return {kCudnnMissing};
}

}  // namespace lockstep::cuda
