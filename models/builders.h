#pragma once
// One builder per model; see registry.h.

#include "models/registry.h"
#include "runtime/graph/builder.h"

namespace lockstep {

Graph build_mlp(const MlpConfig& config,
                const ModelIo& io,
                int64_t lane_batch,
                const GraphOptions& options);
// `tokens`: length of the sequences, at most the context.
Graph build_gpt(const GptConfig& config,
                int64_t lane_batch,
                int64_t tokens,
                const GraphOptions& options);

// Networks that take images, (lane_batch, io.height, io.width, io.channels) u8, and labels.
Graph build_resnet(const ResnetConfig& config,
                   const ModelIo& io,
                   int64_t lane_batch,
                   const GraphOptions& options);
Graph build_vgg(const VggConfig& config,
                const ModelIo& io,
                int64_t lane_batch,
                const GraphOptions& options);
Graph build_alexnet(const AlexnetConfig& config,
                    const ModelIo& io,
                    int64_t lane_batch,
                    const GraphOptions& options);
Graph build_lenet(const LenetConfig& config,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options);

// Throws ConfigError where the images of `io` are too small for the network, or of a size that its
// classifier cannot take.
void check_images(const ResnetConfig& config, const ModelIo& io);
void check_images(const VggConfig& config, const ModelIo& io);
void check_images(const AlexnetConfig& config, const ModelIo& io);
void check_images(const LenetConfig& config, const ModelIo& io);

}  // namespace lockstep
