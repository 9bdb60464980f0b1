#pragma once
// How cuDNN is loaded, and which CUDA runtime cudnn-frontend calls.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace lockstep::cuda {

// Opens cuDNN, for cudnn_frontend::cudnn_dlhandle; throws std::runtime_error if it is not found.
// The frontend by itself opens the first libcudart that it finds, version 12 before 13, whatever it
// was compiled for. So this first names the version of the headers, unless the user has named a
// library.
inline void* open_cudnn() {
  constexpr const char* kRuntime = "CUDNN_FRONTEND_CUDART_LIB_NAME";
  const char* const chosen = std::getenv(kRuntime);
  if (chosen == nullptr || *chosen == '\0')
    ::setenv(kRuntime, ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), 1);
  void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (library != nullptr) return library;
  const char* const text = ::dlerror();
  throw std::runtime_error(text == nullptr ? "libcudnn.so.9 cannot be loaded" : text);
}

}  // namespace lockstep::cuda
