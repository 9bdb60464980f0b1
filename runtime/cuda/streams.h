#pragma once
// Streams and times of their work. Only host code that calls CUDA includes this.

#include <cuda_runtime_api.h>

#include "runtime/cuda/check.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Owns a stream.
class ScopedStream {
 public:
  explicit ScopedStream(int device) {
    LOCKSTEP_CUDA(cudaSetDevice(device));
    LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;
  ~ScopedStream() { cudaStreamDestroy(stream_); }
  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// A point in the stream whose time is recorded; inside a recorded graph, at every replay.
class TimeMark {
 public:
  TimeMark() { LOCKSTEP_CUDA(cudaEventCreate(&event_)); }
  TimeMark(const TimeMark&) = delete;
  TimeMark& operator=(const TimeMark&) = delete;
  ~TimeMark() { cudaEventDestroy(event_); }
  void record(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    LOCKSTEP_CUDA(cudaStreamIsCapturing(stream, &status));
    LOCKSTEP_CUDA(cudaEventRecordWithFlags(
        event_,
        stream,
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal));
  }
  double ms_until(const TimeMark& later) const {
    float ms = 0;
    LOCKSTEP_CUDA(cudaEventElapsedTime(&ms, event_, later.event_));
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::cuda
