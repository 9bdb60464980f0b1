#pragma once
// The libraries and the stream that ops are queued with.

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/stream.h"
#include "runtime/exec/lane_context.h"

namespace lockstep::cuda {

// What the launchers of this backend find in OpCall::device().
struct LaunchContext {
  Stream stream;
  Matmul& matmul;
  CudnnAttention& cudnn_attention;
  CudnnConv2d& cudnn_conv2d;
  bool tf32;                // products of floats may round to TF32
  const LaneContext* lane;  // on the device: of the lane under way
};

}  // namespace lockstep::cuda
