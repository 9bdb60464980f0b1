#pragma once
// CUDA's streams for the host: what is queued runs at once, or is recorded while the stream is
// captured.

#include <functional>

struct CUstream_st;

namespace lockstep::fibers {

void enqueue(CUstream_st* stream, std::function<void()> work);

}  // namespace lockstep::fibers
