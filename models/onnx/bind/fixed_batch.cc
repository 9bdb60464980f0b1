#include "models/onnx/bind/fixed_batch.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

const FileValue& value_of(const File& file, int input) {
  return file.values[static_cast<size_t>(input)];
}

bool fixes_batch(const FileValue& value) {
  return !value.extents.empty() && value.extents[0].extent >= 0;
}

const FileValue* input_with_fixed_batch(const File& file) {
  for (const int input : file.inputs)
    if (fixes_batch(value_of(file, input))) return &value_of(file, input);
  return nullptr;
}

}  // namespace

int64_t fixed_batch(const File& file) {
  const FileValue* const input = input_with_fixed_batch(file);
  return input == nullptr ? 0 : input->extents[0].extent;
}

std::string export_line(const File& file, const std::set<size_t>& more) {
  std::vector<std::string> names, shapes;
  for (const int input : file.inputs) {
    const FileValue& value = value_of(file, input);
    names.push_back(in_quotes(value.name));
    std::vector<std::string> open;
    for (size_t axis = 0; axis < value.extents.size(); ++axis)
      if (axis == 0 || value.extents[axis].extent < 0 || (shapes.empty() && more.contains(axis)))
        open.push_back(fmt::format("{}: torch.export.Dim.DYNAMIC", axis));
    shapes.push_back(open.empty() ? "None" : fmt::format("{{{}}}", fmt::join(open, ", ")));
  }
  return fmt::format(
      "torch.onnx.export(model, args, {}, dynamo=True, optimize=False, opset_version=23, "
      "input_names=[{}], dynamic_shapes=({},))",
      in_quotes(std::filesystem::path(file.path).filename().string()),
      fmt::join(names, ", "),
      fmt::join(shapes, ", "));
}

std::string condition_of_batch(const File& file, int64_t batch) {
  const FileValue* const input = input_with_fixed_batch(file);
  return fmt::format(
      "{}, so it trains only with train.lanes = train.global_batch{}; for other values, export it "
      "with an open batch axis: {}",
      input == nullptr ? fmt::format("its nodes fit a batch of {} alone", batch)
                       : fmt::format("input \"{}\" has a fixed batch of {}", input->name, batch),
      batch == 1 ? " (one sample a lane)" : fmt::format(" / {} ({} samples a lane)", batch, batch),
      export_line(file));
}

std::string refusal_of_batch(const File& file, int64_t lane_batch, int64_t batch) {
  return fmt::format("{}: a lane has {} sample{}, but {}",
                     file.path,
                     lane_batch,
                     plural(lane_batch),
                     condition_of_batch(file, batch));
}

void require_batch(const File& file, int64_t batch) {
  const FileValue* const first = input_with_fixed_batch(file);
  if (first == nullptr) return;
  const int64_t fixed = first->extents[0].extent;
  for (const int input : file.inputs) {
    const FileValue& value = value_of(file, input);
    if (fixes_batch(value) && value.extents[0].extent != fixed)
      throw ConfigError(
          "{}: inputs \"{}\" and \"{}\" have different batches, fixed at {} and {}; export it with "
          "an open batch axis: {}",
          file.path,
          first->name,
          value.name,
          fixed,
          value.extents[0].extent,
          export_line(file));
  }
  if (fixed != batch) throw ConfigError("{}", refusal_of_batch(file, batch, fixed));
}

}  // namespace lockstep::onnx
