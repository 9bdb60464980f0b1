#pragma once
// CUDA's stream type, for headers that include no CUDA header.

struct CUstream_st;

namespace lockstep::cuda {

// cudaStream_t, by its name in CUDA's ABI.
using Stream = CUstream_st*;

}  // namespace lockstep::cuda
