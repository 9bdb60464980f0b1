#pragma once
// CUDA's stream type for headers that include no CUDA header.

struct CUstream_st;

namespace lockstep::cuda {

// cudaStream_t, by its name in CUDA's ABI, so that headers of kernels need no CUDA header.
using Stream = CUstream_st*;

}  // namespace lockstep::cuda
