#pragma once
// What cuDNN has no engine for, as it answers for GPUs that are described to it. The stand-ins play
// the GPU of FAKE_GPU_CAPABILITY (90, a Hopper) and the cuDNN of FAKE_CUDNN_VERSION (90000).

#include <fmt/core.h>

#include <cstdlib>
#include <string>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::fibers {

inline int number_from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}
inline int fake_capability() { return number_from_environment("FAKE_GPU_CAPABILITY", 90); }
// By default one that puts two numbers a sample into the workspace of attention.
inline int fake_cudnn_version() { return number_from_environment("FAKE_CUDNN_VERSION", 90000); }

// Why cuDNN refuses the pass; empty if it runs it. The backward pass is the deterministic one.
inline std::string refusal_of_attention(const cuda::CudnnAttentionKey& key,
                                        int capability,
                                        int version) {
  constexpr int64_t kUnit = 8, kMax = 128, kMaxOnHopper = 256;
  constexpr int kFirstOnBlackwell = 91800, kFirstWindowsOnBothSides = 91002;
  const int64_t size = key.shape.head_size;
  const bool hopper = capability / 10 == 9;
  if (size % kUnit != 0) return "hidden_dim should be multiple of 8";
  if (key.shape.window > 0 && !key.shape.causal && version < kFirstWindowsOnBothSides)
    return "Left and right bounds are only supported with is_dropout=False, is_bias=False. And the "
           "diagonal alignment must be set.";
  if (!key.backward) return "";
  if (size > (hopper ? kMaxOnHopper : kMax))
    return fmt::format(
        "hidden_dim should be less than or equal to {} and hidden_dim should be "
        "multiple of 8",
        hopper ? kMaxOnHopper : kMax);
  if (capability >= 100 && version < kFirstOnBlackwell)
    return fmt::format("no deterministic backward pass on Blackwell before cuDNN 9.18, this is {}",
                       version);
  return "";
}

inline std::string refusal_of_conv2d(const cuda::CudnnConv2dKey& key) {
  const graph::Conv2dShape& shape = key.shape;
  if (shape.groups < 1 || shape.channels % shape.groups != 0 || shape.outputs % shape.groups != 0)
    return fmt::format("{} groups do not divide {} channels and {} outputs",
                       shape.groups,
                       shape.channels,
                       shape.outputs);
  if (key.wide && key.dtype == DType::kF32) return "only 16-bit gradients are widened";
  if (key.wide && shape.channels % 8 != 0)
    return fmt::format("no engine widens gradients of {} channels", shape.channels);
  return "";
}

}  // namespace lockstep::fibers
