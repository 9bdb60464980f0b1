#pragma once
// Both ends of a network that takes noise off images: what it is given, and its loss.

#include <string>

#include "models/registry.h"
#include "runtime/graph/builder.h"

namespace lockstep {

// How images are noised, and what the network is to say of them.
struct Diffusion {
  DiffusionSchedule schedule = DiffusionSchedule::kLinear;
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  float label_dropout = 0;  // share of a step's samples that lose their class
  int64_t classes = 0;      // also what stands for a class that is lost
};

// Throws ConfigError where the two do not go together; `section`: the path of their fields.
void check_diffusion(const std::string& section,
                     DiffusionSchedule schedule,
                     DiffusionTarget target);

struct DenoiserInputs {
  TensorId images = kNoTensor;   // (N, H, W, C), noised
  TensorId times = kNoTensor;    // (N) f32
  TensorId classes = kNoTensor;  // (N) i32
  TensorId target = kNoTensor;   // (N, H W C) f32; none in inference
};

// Adds the inputs of a graph: images as the loader fills them, noised, with their labels; for
// inference noised images (N, H, W, C) f32 and (N, 2) f32, the time and the class of each.
DenoiserInputs denoiser_inputs(GraphBuilder& builder,
                               const ModelIo& io,
                               int64_t lane_batch,
                               const Diffusion& diffusion);

// Ends the graph: predicted (N, H W C) is what the network says of each element.
void end_denoiser(GraphBuilder& builder, TensorId predicted, const DenoiserInputs& inputs);

}  // namespace lockstep
