#pragma once
// A diffusion model's network with its weights, ready to tell what is in noised images.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/registry.h"
#include "runtime/checkpoint/state.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/executor.h"

namespace lockstep {

class ImageDenoiser {
 public:
  // Fills the parameters that the slices name in a flat buffer, fp32.
  using ReadWeights = std::function<void(const std::vector<NamedSlice>& slices, float* flat)>;

  // `config` is resolved. For `images` at once.
  ImageDenoiser(std::unique_ptr<Backend> backend,
                const ModelConfig& config,
                const ModelIo& io,
                int64_t images,
                const ReadWeights& read_weights);

  int64_t images() const { return images_; }
  int64_t elements() const { return elements_; }  // of an image: H W C
  // What the next run is given, for the caller to fill: (images, H, W, C), and of each its time and
  // class.
  std::span<float> noised() { return noised_; }
  void tell(int64_t image, float time, int32_t classed);
  // (images, H, W, C): what the network says of each element. Until the next run.
  std::span<const float> run();

 private:
  int64_t images_, elements_;
  std::unique_ptr<Backend> backend_;
  ParameterLayout layout_;
  Graph graph_;
  ProgramPlan plan_;
  std::optional<Executor> executor_;
  std::span<float> noised_, conditions_, result_;  // as the host has them
  std::byte* device_noised_ = nullptr;             // and the device
  std::byte* device_conditions_ = nullptr;
  std::span<LaneContext> lane_;
};

}  // namespace lockstep
