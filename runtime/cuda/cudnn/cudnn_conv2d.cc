#include "runtime/cuda/cudnn/cudnn_conv2d.h"

#include "runtime/cuda/cudnn/cudnn_graphs.h"

namespace lockstep::cuda {

struct CudnnConv2d::Library : CudnnConv2dGraphs {
  using CudnnConv2dGraphs::CudnnConv2dGraphs;
};

CudnnConv2d::CudnnConv2d(Stream stream, Choose choose)
    : stream_(stream), choose_(std::move(choose)) {}

CudnnConv2d::~CudnnConv2d() = default;

bool CudnnConv2d::supports(const CudnnConv2dKey& key) {
  try {
    if (!library_) library_ = std::make_unique<Library>(stream_);
  } catch (const std::exception& error) {
    why_not_ = error.what();
    return false;
  }
  if (choose_ && !chosen_.contains(key)) chosen_.emplace(key, choose_(*this, key));
  const std::string& refusal = choose_ ? chosen_.at(key) : library_->refusal(key);
  if (!refusal.empty()) why_not_ = refusal;
  return refusal.empty();
}

void CudnnConv2d::run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace) {
  library_->run(key, arrays, workspace);
}

std::vector<std::string> CudnnConv2d::offers(const CudnnConv2dKey& key, std::string& why_not) {
  return library_->offers(key, why_not);
}

std::string CudnnConv2d::use(const CudnnConv2dKey& key, const std::string& engine) {
  return library_->use(key, engine);
}

}  // namespace lockstep::cuda
