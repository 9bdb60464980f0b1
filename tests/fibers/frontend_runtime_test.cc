// frontend_runtime_test MAJOR: cudnn-frontend must open the libcudart of this version. Catches: the
// frontend calling another runtime than the one that it was compiled for, and a user's choice that
// is overridden.
#include <cudnn.h>

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "runtime/cuda/cudnn/cudnn_library.h"

void* cudnn_frontend::cudnn_dlhandle = nullptr;

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    cudnn_frontend::cudnn_dlhandle = lockstep::cuda::open_cudnn();
  } catch (const std::runtime_error&) {  // the choice is made without cuDNN, too
  }
  const int version = cudnn_frontend::detail::loaded_cudart_version();
  std::printf("cudnn-frontend opened the runtime of CUDA %d\n", version);
  return version / 1000 == std::atoi(arguments[1]) ? 0 : 1;
}
