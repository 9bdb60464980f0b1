#pragma once
// Building blocks of the image networks: input, normalisation of pixels, convolutions and linear
// layers with their initial weights, and the loss.

#include <string>

#include "models/registry.h"
#include "runtime/graph/builder.h"

namespace lockstep::models {

// Initial weights of a layer.
enum class InitialWeights {
  kKaimingFanOut,  // N(0, 2 / fan out); bias 0
  kKaimingFanIn,   // N(0, 2 / fan in); bias U(-b, b), b = 1 / sqrt(fan in)
  kUniformFanIn,   // both U(-b, b): the default of PyTorch's layers
  kNormal001,      // N(0, 0.01^2); bias 0
  kNormal002,      // N(0, 0.02^2); bias 0
};

class ImageLayers {
 public:
  ImageLayers(const ModelIo& io, int64_t lane_batch, const graph::GraphOptions& options);

  graph::GraphBuilder& builder() { return builder_; }
  // If on, norms that are added later use the statistics of all lanes in training.
  void synchronise_norms(bool on) { synchronised_ = on; }
  // The images, normalised: (N, H, W, C).
  TensorId images() const { return images_; }
  int64_t channels(TensorId x) const { return builder_.graph().shape(x).columns(); }

  struct Conv {
    int64_t outputs, kernel, stride = 1, padding = 0;
    bool bias = false;
    Activation activation = Activation::kNone;
    int64_t groups = 1;  // as many as input channels: depthwise
  };
  // Parameters: name.weight and, if conv.bias is set, name.bias.
  TensorId conv(const std::string& name, TensorId x, const Conv& conv, InitialWeights initial);
  // Parameters: name.weight, .bias, .running_mean and .running_var. For delta see batch_norm.
  TensorId norm(const std::string& name,
                TensorId x,
                TensorId delta,
                Activation activation,
                float initial_gamma = 1);
  // Reads images (N, H, W, C) as rows of H * W * C.
  TensorId linear(const std::string& name,
                  TensorId x,
                  int64_t outputs,
                  Activation activation,
                  InitialWeights initial);
  // Maximum over windows of kernel x kernel pixels.
  TensorId max_pool(
      const std::string& name, TensorId x, int64_t kernel, int64_t stride, int64_t padding = 0);
  TensorId avg_pool(const std::string& name, TensorId x, int64_t kernel, int64_t stride);
  // PyTorch's AdaptiveAvgPool2d(side): means of side x side parts of the image. Parts overlap or
  // repeat pixels if the image's size is no multiple of `side`.
  TensorId adaptive_avg_pool(const std::string& name, TensorId x, int64_t side);

  // Ends the graph with the loss, or in inference with the logits (N, classes).
  graph::Graph finish(TensorId logits, float label_smoothing) &&;

 private:
  TensorId weight(const std::string& name, Shape shape, int64_t outputs, InitialWeights initial);
  TensorId bias(const std::string& name, TensorId weight, int64_t outputs, InitialWeights initial);

  graph::GraphBuilder builder_;
  bool synchronised_ = false;
  TensorId labels_ = kNoTensor;
  TensorId images_ = kNoTensor;
};

}  // namespace lockstep::models
