#include "runtime/cuda/cudnn_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <stdexcept>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"

// The frontend calls cuDNN through this.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {

void load_cudnn() {
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return;
  cudnn_frontend::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (cudnn_frontend::cudnn_dlhandle != nullptr) return;
  const char* text = ::dlerror();
  throw std::runtime_error(text == nullptr ? "libcudnn.so.9 cannot be loaded" : text);
}

CudnnHandle::CudnnHandle(Stream stream) {
  load_cudnn();
  if (cudnn_frontend::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS ||
      cudnn_frontend::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS) {
    if (handle_ != nullptr) cudnn_frontend::detail::destroy_handle(handle_);
    throw std::runtime_error("cuDNN cannot use this GPU");
  }
  int device = 0, major = 0, minor = 0;
  LOCKSTEP_CUDA(cudaGetDevice(&device));
  LOCKSTEP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  LOCKSTEP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  sm_ = major * 10 + minor;
}

CudnnHandle::~CudnnHandle() { cudnn_frontend::detail::destroy_handle(handle_); }

cudnn_frontend::DataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return cudnn_frontend::DataType_t::FLOAT;
    case DType::kBF16: return cudnn_frontend::DataType_t::BFLOAT16;
    case DType::kF16: return cudnn_frontend::DataType_t::HALF;
    default: LOCKSTEP_CHECK(false, "cuDNN is not given {} ", name_of(dtype));
  }
}

}  // namespace lockstep::cuda
