#include "models/onnx/bind/binder.h"

#include <fmt/format.h>

#include <set>

#include "models/onnx/bind/fixed_batch.h"
#include "models/onnx/nodes/node_view.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// Finds the extent of each axis. A name is bound for all axes that have it.
class AxisBinder {
 public:
  AxisBinder(const File& file, const BindOptions& options) : file_(file), options_(options) {
    check_options();
    bind_batch();
    for (const auto& [name, extent] : options.axes) names_[name] = extent;
    for (const int input : file.inputs) bind_given(value(input));
  }

  Extents extents_of(int input) const {
    const FileValue& v = value(input);
    const auto given = options_.inputs.find(v.name);
    if (given != options_.inputs.end()) return given->second;
    if (!v.has_extents)
      throw ConfigError(
          "{}: input \"{}\" has no extents in the file; set them all", file_.path, v.name);
    Extents extents;
    for (size_t axis = 0; axis < v.extents.size(); ++axis) extents.push_back(extent_of(v, axis));
    return extents;
  }

 private:
  const FileValue& value(int number) const { return file_.values[static_cast<size_t>(number)]; }

  static std::string axis_path(const FileValue& v, size_t axis) {
    return fmt::format("{}.{}", v.name, axis);
  }

  // The batch's axis is the one named options_.batch_axis, or the first if that is not set.
  bool is_batch(const OpenExtent& open, size_t axis) const {
    return options_.batch_axis.empty() ? axis == 0 : open.name == options_.batch_axis;
  }

  // The names of all open axes: the file's names, or INPUT.AXIS.
  std::set<std::string> axis_names() const {
    std::set<std::string> names;
    for (const int input : file_.inputs)
      for (size_t axis = 0; axis < value(input).extents.size(); ++axis) {
        const OpenExtent& open = value(input).extents[axis];
        if (open.extent >= 0) continue;
        names.insert(open.name.empty() ? axis_path(value(input), axis) : open.name);
      }
    return names;
  }

  void check_options() const {
    if (options_.batch < 1)
      throw ConfigError("{}: the batch is {}; must be 1 or more", file_.path, options_.batch);
    const std::set<std::string> names = axis_names();
    const std::string known = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
    if (!options_.batch_axis.empty() && names.count(options_.batch_axis) == 0)
      throw ConfigError("{}: no input has an axis named {}; open axes are: {}",
                        file_.path,
                        options_.batch_axis,
                        known);
    for (const auto& [name, extent] : options_.axes) {
      if (names.count(name) == 0 && !is_axis_path(name))
        throw ConfigError(
            "{}: no input has an axis named {}; open axes are: {}", file_.path, name, known);
      require_extent(name, extent);
    }
    std::set<std::string> inputs;
    for (const int input : file_.inputs) inputs.insert(value(input).name);
    for (const auto& [name, extents] : options_.inputs) {
      if (inputs.count(name) == 0)
        throw ConfigError(
            "{}: no input is named {}; inputs are: {}", file_.path, name, fmt::join(inputs, ", "));
      for (const int64_t extent : extents) require_extent(name, extent);
    }
  }

  // Whether the name is INPUT.AXIS of an open axis, even if the file names the axis.
  bool is_axis_path(const std::string& name) const {
    for (const int input : file_.inputs)
      for (size_t axis = 0; axis < value(input).extents.size(); ++axis)
        if (name == axis_path(value(input), axis)) return value(input).extents[axis].extent < 0;
    return false;
  }

  void require_extent(const std::string& name, int64_t extent) const {
    if (extent < 0 || extent > kMaxExtent)
      throw ConfigError("{}: an extent of {} for {}; must be 0 or more", file_.path, extent, name);
  }

  void bind_batch() {
    for (const int input : file_.inputs)
      for (size_t axis = 0; axis < value(input).extents.size(); ++axis) {
        const OpenExtent& open = value(input).extents[axis];
        if (open.extent < 0 && !open.name.empty() && is_batch(open, axis) &&
            options_.inputs.count(value(input).name) == 0)
          names_[open.name] = options_.batch;
      }
  }

  // Extents given for a complete input bind the names of its axes. They must agree with those that
  // the file fixes.
  void bind_given(const FileValue& v) {
    const auto given = options_.inputs.find(v.name);
    if (given == options_.inputs.end() || !v.has_extents) return;
    if (given->second.size() != v.extents.size())
      throw ConfigError("{}: extents {} for input \"{}\"; must have {} axes",
                        file_.path,
                        to_string(given->second),
                        v.name,
                        v.extents.size());
    for (size_t axis = 0; axis < v.extents.size(); ++axis) {
      const OpenExtent& open = v.extents[axis];
      const int64_t extent = given->second[axis];
      if (axis == 0 && extent == options_.batch && is_batch(open, axis))
        require_batch(file_, options_.batch);
      int64_t fixed = open.extent;
      if (fixed < 0 && !open.name.empty()) fixed = names_.emplace(open.name, extent).first->second;
      if (fixed >= 0 && fixed != extent)
        throw ConfigError("{}: extents {} for input \"{}\"; axis {} ({}) must have {}",
                          file_.path,
                          to_string(given->second),
                          v.name,
                          axis,
                          open.name.empty() ? "fixed in the file" : open.name,
                          fixed);
    }
  }

  int64_t extent_of(const FileValue& v, size_t axis) const {
    const OpenExtent& open = v.extents[axis];
    if (open.extent >= 0) {
      if (options_.batch_axis.empty() && axis == 0) require_batch(file_, options_.batch);
      return open.extent;
    }
    const auto by_path = names_.find(axis_path(v, axis));
    if (by_path != names_.end()) return by_path->second;
    const auto by_name = names_.find(open.name);
    if (by_name != names_.end() && !open.name.empty()) return by_name->second;
    if (is_batch(open, axis)) return options_.batch;
    throw ConfigError("{}: axis {} of input \"{}\"{} is open; set its extent as {}",
                      file_.path,
                      axis,
                      v.name,
                      open.name.empty() ? "" : fmt::format(" (named {})", open.name),
                      open.name.empty() ? axis_path(v, axis) : open.name);
  }

  const File& file_;
  const BindOptions& options_;
  std::map<std::string, int64_t> names_;
};

}  // namespace

std::vector<Extents> input_extents(const File& file, const BindOptions& options) {
  const AxisBinder binder(file, options);
  std::vector<Extents> result;
  for (const int input : file.inputs) {
    result.push_back(binder.extents_of(input));
    if (!elements_within_limit(result.back()))
      throw ConfigError("{}: input \"{}\" has extents {}; a value may have at most 2^46 elements",
                        file.path,
                        file.values[static_cast<size_t>(input)].name,
                        to_string(result.back()));
  }
  return result;
}

}  // namespace lockstep::onnx
