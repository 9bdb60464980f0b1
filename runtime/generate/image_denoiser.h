#pragma once
// A diffusion model's network with its weights, ready to evaluate noised images.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/registry.h"
#include "runtime/exec/executor.h"
#include "runtime/generate/weights.h"

namespace lockstep::generate {

class ImageDenoiser {
 public:
  // `model` must be resolved. Weights and activations have the type `compute`. The network
  // evaluates batches of `images` images.
  ImageDenoiser(std::unique_ptr<exec::Backend> backend,
                const models::OpenedModel& model,
                const models::ModelIo& io,
                DType compute,
                int64_t images,
                const ReadWeights& read_weights);

  int64_t images() const { return images_; }
  int64_t elements() const { return elements_; }  // elements of an image: H W C
  // The noised images (images, H, W, C) that the next run() reads. The caller fills them, and sets
  // the time and class of each image by set_condition().
  std::span<float> noised() { return noised_; }
  void set_condition(int64_t image, float time, int32_t class_index);
  // Returns the network's output for each element (images, H, W, C). It is valid until the next
  // run.
  std::span<const float> run();

 private:
  int64_t images_, elements_;
  std::unique_ptr<exec::Backend> backend_;
  plan::ParameterLayout layout_;
  graph::Graph graph_;
  plan::ProgramPlan plan_;
  std::optional<exec::Executor> executor_;
  std::span<float> noised_, conditions_;  // host buffers
  std::span<std::byte> result_;           // of the compute type
  std::vector<float> outputs_;            // the same as floats
  std::byte* device_noised_ = nullptr;    // device buffers
  std::byte* device_conditions_ = nullptr;
  std::span<graph::LaneContext> lane_;
};

}  // namespace lockstep::generate
