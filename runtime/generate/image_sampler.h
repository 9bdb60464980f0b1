#pragma once
// Generates images from noise with a diffusion model's network.
//
// Models with a noise schedule use deterministic DDIM sampling (Song et al. 2020). Each step
// computes from the network's output the clean image, clamped to [-1, 1], and the noise, and mixes
// both again for the next, earlier time. Flow-matching models use Euler steps along the predicted
// velocity.
//
// Classifier-free guidance (Ho and Salimans 2022): with the network's outputs c for the class and u
// for no class, a step uses u + guidance (c - u). Guidance 1 uses the class alone, 0 no class.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/config/model_traits.h"

namespace lockstep::generate {

class ImageDenoiser;

struct ImageSampling {
  int64_t steps = 50;
  double guidance = 2;
  uint64_t seed = 0;

  bool uses_class() const { return guidance != 0; }
  bool uses_none() const { return guidance != 1; }
  // Rows of the network's batch for each image.
  int64_t rows_per_image() const { return uses_class() && uses_none() ? 2 : 1; }
};

// The times of the steps, in decreasing order. At most 1000 steps.
std::vector<int64_t> sampling_times(int64_t steps);

// Returns images (classes, H, W, C), roughly in [-1, 1]. Image i depends only on the model, the
// options, i and its class. `model` has the model's traits; class number `model.outputs` means "no
// class". The denoiser must take at least rows_per_image() images. progress(done, all) is called
// after each step.
std::vector<float> sample_images(ImageDenoiser& denoiser,
                                 const config::ModelTraits& model,
                                 std::span<const int32_t> classes,
                                 const ImageSampling& options,
                                 const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace lockstep::generate
