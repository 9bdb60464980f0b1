// Compiles the arithmetic that host and device share (random numbers, optimizers) for the GPU, so
// that a change which only the host compiler accepts is caught wherever nvcc is, with or without a
// GPU.
#include "runtime/base/rng.h"
#include "runtime/exec/optimizer_math.h"

namespace lockstep {

__global__ void philox_kernel(RngStream stream, uint32_t* words, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) words[i] = philox_word(stream, static_cast<uint64_t>(i));
}

__global__ void sgd_kernel(
    SgdConstants constants, const float* gradients, float* parameters, float* moments, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) sgd_momentum_update(constants, gradients[i], parameters[i], moments[i]);
}

__global__ void adam_kernel(AdamConstants constants,
                            const float* gradients,
                            float* parameters,
                            float* first,
                            float* second,
                            int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) adam_update(constants, gradients[i], parameters[i], first[i], second[i]);
}

}  // namespace lockstep
