#pragma once
// The inputs and the loss of a network that removes noise from images.

#include <string>

#include "models/registry.h"
#include "runtime/graph/builder.h"

namespace lockstep::models {

// How images are noised, and what the network predicts.
struct Diffusion {
  DiffusionSchedule schedule = DiffusionSchedule::kLinear;
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  float label_dropout = 0;  // share of samples that are trained without their class
  int64_t classes = 0;      // also the id that means "no class"
};

// Throws ConfigError if schedule and target cannot be combined. `section` is the path of the config
// section with these two fields.
void check_diffusion(const std::string& section,
                     DiffusionSchedule schedule,
                     DiffusionTarget target);

struct DenoiserInputs {
  TensorId images = kNoTensor;   // (N, H, W, C), noised
  TensorId times = kNoTensor;    // (N) f32
  TensorId classes = kNoTensor;  // (N) i32
  TensorId target = kNoTensor;   // (N, H W C) f32; none in inference
};

// Adds a graph's inputs. In training these are the loader's images and labels, and an op that adds
// noise. In inference they are noised images (N, H, W, C) f32 and the time and class of each image
// (N, 2) f32.
DenoiserInputs denoiser_inputs(graph::GraphBuilder& builder,
                               const ModelIo& io,
                               int64_t lane_batch,
                               const Diffusion& diffusion);

// Ends the graph with the mean squared error of predicted (N, H W C), or in inference with
// `predicted` itself.
void end_denoiser(graph::GraphBuilder& builder, TensorId predicted, const DenoiserInputs& inputs);

}  // namespace lockstep::models
