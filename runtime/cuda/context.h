#pragma once
// The libraries and the stream that ops are queued with.

#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

class CudnnAttention;
class CudnnConv2d;
class Matmul;

// What the implementations of this backend find in OpCall::device(). The libraries' are null where
// a test has none.
struct LaunchContext {
  Stream stream = nullptr;
  Matmul* matmul = nullptr;
  CudnnAttention* cudnn_attention = nullptr;
  CudnnConv2d* cudnn_conv2d = nullptr;
  bool tf32 = false;                  // products of floats may round to TF32
  const LaneContext* lane = nullptr;  // on the device: of the lane under way
};

inline LaunchContext& context_of(const OpCall& call) { return call.device<LaunchContext>(); }
inline Stream stream_of(const OpCall& call) { return context_of(call).stream; }

}  // namespace lockstep::cuda
