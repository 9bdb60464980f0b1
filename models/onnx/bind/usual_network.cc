#include "models/onnx/bind/usual_network.h"

#include <algorithm>
#include <optional>
#include <set>

#include "models/onnx/bind/objective.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// Sides of images whose size the file leaves open. The first side with which the network can be
// bound is taken.
constexpr int64_t kUsualSides[] = {224, 32, 28, 64, 96};

// Nodes may combine samples, in pairs or more.
constexpr int64_t kFewSamples[] = {1, 2, 4, 8};

// The batches that Reshape nodes may have been exported with: the first extents of their shapes, if
// they are constants.
std::set<int64_t> batches_of_shapes(const File& file) {
  constexpr size_t kMaxBatches = 4;
  constexpr int64_t kMaxBatch = 4096;
  std::set<int64_t> batches;
  for (const Node& node : file.nodes) {
    if (node.op != "Reshape" || node.input(1) < 0 || batches.size() == kMaxBatches) continue;
    const FileValue& shape = file.values[static_cast<size_t>(node.input(1))];
    const Array* array = shape.constant ? &*shape.constant : nullptr;
    if (shape.initializer >= 0)
      array = &file.initializers[static_cast<size_t>(shape.initializer)].array;
    if (array == nullptr || array->type != ElementType::kInt64 || array->size() == 0) continue;
    const int64_t first = array->as_int64().front();
    if (first > 0 && first <= kMaxBatch) batches.insert(first);
  }
  return batches;
}

std::vector<int64_t> samples_to_try(const NetworkInputs& inputs,
                                    const OpenedFile& opened,
                                    const OnnxConfig& config) {
  for (const int input : opened.file.inputs) {
    const FileValue& value = opened.file.values[static_cast<size_t>(input)];
    if (!value.extents.empty() && value.extents[0].extent > 0) return {value.extents[0].extent};
  }
  std::vector<int64_t> samples(std::begin(kFewSamples), std::end(kFewSamples));
  for (const int64_t batch : batches_of_shapes(opened.file))
    if (std::ranges::count(samples, batch) == 0) samples.push_back(batch);
  if (inputs.has(Meaning::kMask) && !is_stream(config, graph::Purpose::kInference))
    samples.insert(samples.begin(), kSamplesOfMasks);
  return samples;
}

// The extents of images (C, H, W) to try; for other inputs a single empty one.
std::vector<Extents> images_to_try(const NetworkInputs& inputs,
                                   const OpenedFile& opened,
                                   const OnnxConfig& config) {
  if (inputs.kind() != config::ModelInput::kImages) return {{}};
  std::vector<Extents> sizes;
  for (const int64_t side : kUsualSides)
    sizes.push_back(with_open_ones(inputs, opened, config, {3, side, side}));
  return sizes;
}

}  // namespace

UsualNetwork usual_network(const NetworkInputs& inputs,
                           const OpenedFile& opened,
                           const OnnxConfig& config,
                           BoundNetworks& networks) {
  std::optional<ConfigError> first;
  for (const int64_t samples : samples_to_try(inputs, opened, config)) {
    std::optional<ConfigError> last;
    for (const Extents& images : images_to_try(inputs, opened, config)) {
      try {
        const BoundForm form = {
            samples, inputs.context(), images, is_stream(config, graph::Purpose::kInference)};
        return {networks.get(form), form};
      } catch (const ConfigError& error) {
        last = error;
      }
    }
    if (!first) first = last;
  }
  throw *first;
}

std::vector<std::string> node_problems(const NetworkInputs& inputs,
                                       const OpenedFile& opened,
                                       const OnnxConfig& config) {
  std::optional<std::vector<std::string>> fewest;
  for (const int64_t samples : samples_to_try(inputs, opened, config))
    for (const Extents& images : images_to_try(inputs, opened, config)) {
      auto found = inputs.problems(
          samples, inputs.context(), images, is_stream(config, graph::Purpose::kInference));
      if (!fewest || found.size() < fewest->size()) fewest = std::move(found);
    }
  return *fewest;
}

Extents with_open_ones(const NetworkInputs& inputs,
                       const OpenedFile& opened,
                       const OnnxConfig& config,
                       Extents open) {
  const FileValue& input =
      opened.file.values[static_cast<size_t>(opened.file.inputs[inputs.images_place()])];
  for (size_t axis = 1; axis < input.extents.size(); ++axis) {
    const OpenExtent& extent = input.extents[axis];
    if (extent.extent >= 0) open[axis - 1] = extent.extent;
    for (const OnnxAxis& given : config.axes) {
      const std::string number = fmt::format("{}.{}", input.name, axis);
      if (extent.extent < 0 && (given.name == number || given.name == extent.name))
        open[axis - 1] = given.extent;
    }
  }
  return open;
}

}  // namespace lockstep::onnx
