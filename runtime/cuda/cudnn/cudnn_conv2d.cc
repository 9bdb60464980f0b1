#include "runtime/cuda/cudnn/cudnn_conv2d.h"

#include "runtime/cuda/cudnn/cudnn_graphs.h"

namespace lockstep::cuda {

struct CudnnConv2d::Library : CudnnConv2dGraphs {
  using CudnnConv2dGraphs::CudnnConv2dGraphs;
};

CudnnConv2d::CudnnConv2d(Stream stream) : stream_(stream) {}

CudnnConv2d::~CudnnConv2d() = default;

bool CudnnConv2d::supports(const CudnnConv2dKey& key) {
  try {
    if (!library_) library_ = std::make_unique<Library>(stream_);
  } catch (const std::exception& error) {
    why_not_ = error.what();
    return false;
  }
  const std::string& refusal = library_->refusal(key);
  if (!refusal.empty()) why_not_ = refusal;
  return refusal.empty();
}

void CudnnConv2d::run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace) {
  library_->run(key, arrays, workspace);
}

}  // namespace lockstep::cuda
