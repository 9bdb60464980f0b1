#pragma once
// The stream and the libraries that implementations use to launch an op.

#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

class CudnnAttention;
class CudnnConv2d;
class Matmul;

// The object that this backend's implementations find in OpCall::device(). Libraries are null in
// tests that do not use them.
struct LaunchContext {
  Stream stream = nullptr;
  Matmul* matmul = nullptr;
  CudnnAttention* cudnn_attention = nullptr;
  CudnnConv2d* cudnn_conv2d = nullptr;
  int capability = 0;                        // the GPU's compute capability: 90 for 9.0
  int multiprocessors = 1;                   // that the GPU has
  bool tf32 = false;                         // products of floats may round to TF32
  const graph::LaneContext* lane = nullptr;  // in device memory: the current lane
};

inline LaunchContext& context_of(const graph::OpCall& call) { return call.device<LaunchContext>(); }
inline Stream stream_of(const graph::OpCall& call) { return context_of(call).stream; }

}  // namespace lockstep::cuda
