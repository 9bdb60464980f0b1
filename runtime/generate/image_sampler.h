#pragma once
// New images from noise, by a network that tells what is in noised ones.
//
// On the schedules of noise by DDIM without new noise (Song et al. 2020): from the image that the
// network finds in what is there, kept within [-1, 1], follows the noise, and both are mixed again
// for the next, earlier time. On straight lines by Euler's steps along the velocity.
//
// Guidance (Ho and Salimans 2022): of what the network says for the class, c, and for none, u, it is
// u + guidance (c - u) that counts: with 1 the class alone, with 0 none.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/config/model_traits.h"

namespace lockstep {

class ImageDenoiser;

struct ImageSampling {
  int64_t steps = 50;
  double guidance = 2;
  uint64_t seed = 0;

  bool uses_class() const { return guidance != 0; }
  bool uses_none() const { return guidance != 1; }
  // Rows of the network's batch that an image takes.
  int64_t rows_per_image() const { return uses_class() && uses_none() ? 2 : 1; }
};

// The times of the steps, from the first on, 1000 at most.
std::vector<int64_t> sampling_times(int64_t steps);

// (classes, H, W, C) in about [-1, 1]. Image i depends on the model, the options, i and its class,
// and on nothing else. `model`: its traits, of which the class without images is number `outputs`.
// The denoiser takes rows_per_image() images or more. progress: of so many steps of all.
std::vector<float> sample_images(ImageDenoiser& denoiser,
                                 const ModelTraits& model,
                                 std::span<const int32_t> classes,
                                 const ImageSampling& options,
                                 const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace lockstep
