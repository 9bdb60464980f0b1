#include "models/image_model.h"

#include "runtime/base/error.h"

namespace lockstep::models {
namespace {

void set_images(ModelIo& io, int64_t side, int64_t channels) {
  io.height = io.width = side;
  io.channels = channels;
  io.mean.assign(static_cast<size_t>(channels), 0);
  io.std.assign(static_cast<size_t>(channels), 1);
}

// Whether the graph's matrices have as many columns as the file's.
bool columns_agree(const graph::Graph& graph, const ExtentsOf& extents_of) {
  for (const TensorId id : graph.parameters) {
    const graph::Tensor& parameter = graph[id];
    if (parameter.shape.rank() != 2) continue;
    if (extent(extents_of, parameter.name, 1, parameter.shape[1]) != parameter.shape[1])
      return false;
  }
  return true;
}

}  // namespace

int64_t resolve_classes(int64_t configured, const ModelIo& io, const std::string& section) {
  if (configured == 0) return io.classes;
  if (configured < io.classes)
    throw ConfigError(
        "model.{}.classes: value is {}; the data has {} classes", section, configured, io.classes);
  return configured;
}

void require_pixels(const std::string& section, const ModelIo& io, int64_t pixels) {
  if (io.height < pixels || io.width < pixels)
    throw ConfigError("model.{}: images are {} x {}; allowed: {} pixels or more in both directions",
                      section,
                      io.height,
                      io.width,
                      pixels);
}

// A graph for a usual size gives the names of the first and last parameter. The side of the images
// is the first one for which all matrices agree with the file: usual sizes are tried first.
ModelIo io_of_image_weights(const ModelConfig& model, const ExtentsOf& extents_of) {
  constexpr int64_t kUsual[] = {224, 32, 28};
  constexpr int64_t kLargest = 512;
  ModelIo usual;
  set_images(usual, kUsual[0], 3);
  const graph::Graph sample_graph = build_model(model, usual, 1, graph::Purpose::kInference);
  const std::string first = sample_graph[sample_graph.parameters.front()].name,
                    last = sample_graph[sample_graph.parameters.back()].name;
  const int64_t channels = extent(extents_of, first, 1, 3);
  const auto fits = [&](int64_t side) {
    ModelIo io;
    set_images(io, side, channels);
    try {
      resolve_model(model, io);
    } catch (const ConfigError&) {
      return false;  // the network does not take images of this size
    }
    return columns_agree(build_model(model, io, 1, graph::Purpose::kInference), extents_of);
  };
  int64_t side = 0;
  for (const int64_t candidate : kUsual) {
    if (side == 0 && fits(candidate)) side = candidate;
  }
  for (int64_t candidate = kUsual[2]; side == 0 && candidate <= kLargest; ++candidate) {
    if (fits(candidate)) side = candidate;
  }
  ModelIo io;
  set_images(io, side > 0 ? side : kUsual[0], channels);
  io.classes = extent(extents_of, last, 0, 1);
  return io;
}

}  // namespace lockstep::models
