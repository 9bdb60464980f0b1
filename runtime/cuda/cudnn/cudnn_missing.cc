// Replaces the files that call cuDNN in builds without cudnn-frontend.
#include "runtime/base/error.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"

namespace lockstep::cuda {
namespace {

constexpr const char* kReason = "this build has no cuDNN: cudnn-frontend was not found";

}  // namespace

struct CudnnAttention::Library {};
struct CudnnConv2d::Library {};

CudnnAttention::CudnnAttention(Stream stream) : stream_(stream), why_not_(kReason) {}
CudnnAttention::~CudnnAttention() = default;
CudnnConv2d::CudnnConv2d(Stream stream, Choose) : stream_(stream), why_not_(kReason) {}
CudnnConv2d::~CudnnConv2d() = default;

std::string cudnn_version() { return ""; }

bool CudnnAttention::supports(const graph::AttentionShape&, DType, bool) { return false; }
bool CudnnConv2d::supports(const CudnnConv2dKey&) { return false; }

void CudnnAttention::run(const CudnnAttentionKey&, const CudnnAttentionArrays&, void*) {
  LOCKSTEP_CHECK(false, "this build has no cuDNN");
}
void CudnnConv2d::run(const CudnnConv2dKey&, const CudnnConv2dArrays&, void*) {
  LOCKSTEP_CHECK(false, "this build has no cuDNN");
}

std::vector<std::string> CudnnConv2d::offers(const CudnnConv2dKey&, std::string& why_not) {
  why_not = kReason;
  return {};
}
std::string CudnnConv2d::use(const CudnnConv2dKey&, const std::string&) { return kReason; }

CudnnAnswer cudnn_answer(const CudnnAttentionKey&, const DescribedGpu&, const CudnnQuestion&) {
  return {kReason};
}
CudnnAnswer cudnn_answer(const CudnnConv2dKey&, const DescribedGpu&, const CudnnQuestion&) {
  return {kReason};
}

}  // namespace lockstep::cuda
