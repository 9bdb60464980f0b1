// In place of cudnn_attention.cc and cudnn_conv2d.cc where the build found no cudnn-frontend.
#include "runtime/base/error.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_conv2d.h"

namespace lockstep::cuda {
namespace {

constexpr const char* kWhyNot = "this build has no cuDNN: cudnn-frontend was not found";

}  // namespace

struct CudnnAttention::Library {};

CudnnAttention::CudnnAttention(Stream) : why_not_(kWhyNot) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const AttentionShape&, DType) { return false; }

void CudnnAttention::run(const CudnnAttentionKey&, const CudnnAttentionArrays&, void*) {
  LOCKSTEP_CHECK(false, "there is no cuDNN ");
}

size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey&) { return 0; }

int64_t cudnn_backward_batch(const AttentionShape& shape) { return shape.batch; }

std::string cudnn_attention_refusal(const CudnnAttentionKey&, int, const std::string&) {
  return kWhyNot;
}

struct CudnnConv2d::Library {};

CudnnConv2d::CudnnConv2d(Stream) : why_not_(kWhyNot) {}
CudnnConv2d::~CudnnConv2d() = default;

bool CudnnConv2d::supports(const CudnnConv2dKey&) { return false; }

void CudnnConv2d::run(const CudnnConv2dKey&, const CudnnConv2dArrays&, void*) {
  LOCKSTEP_CHECK(false, "there is no cuDNN ");
}

size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey&) { return 0; }

std::string cudnn_conv2d_refusal(const CudnnConv2dKey&, int, const std::string&) { return kWhyNot; }

}  // namespace lockstep::cuda
