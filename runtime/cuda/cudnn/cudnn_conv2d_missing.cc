// Replaces cudnn_conv2d.cc in builds without cudnn-frontend.
#include "runtime/base/error.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"
#include "runtime/cuda/cudnn/cudnn_missing.h"

namespace lockstep::cuda {

struct CudnnConv2d::Library {};

CudnnConv2d::CudnnConv2d(Stream stream) : stream_(stream), why_not_(kCudnnMissing) {}
CudnnConv2d::~CudnnConv2d() = default;

std::string cudnn_version() { return ""; }

bool CudnnConv2d::supports(const CudnnConv2dKey&) { return false; }

void CudnnConv2d::run(const CudnnConv2dKey&, const CudnnConv2dArrays&, void*) {
  LOCKSTEP_CHECK(false, "this build has no cuDNN");
}

CudnnAnswer cudnn_answer(const CudnnConv2dKey&, const DescribedGpu&, const CudnnQuestion&) {
  return {kCudnnMissing};
}

}  // namespace lockstep::cuda
