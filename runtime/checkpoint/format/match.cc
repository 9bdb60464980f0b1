#include "runtime/checkpoint/format/match.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/wrapped_names.h"

namespace lockstep::checkpoint {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t extent : shape) append_item(text, std::to_string(extent));
  return "(" + text + ")";
}

std::string shape_mismatch(const std::string& name,
                           const std::vector<int64_t>& found,
                           const std::vector<int64_t>& expected) {
  return fmt::format("tensor {} has shape {}, but the model needs {}",
                     quote_name(name),
                     shape_text(found),
                     shape_text(expected));
}

}  // namespace

std::string name_list(const std::vector<std::string>& names) {
  constexpr size_t kMaxNamed = 5;
  return named_first(names.size(), kMaxNamed, [&](size_t i) { return quote_name(names[i]); });
}

ShapeByName shapes_in_memory(const std::vector<NamedSlice>& slices) {
  ShapeByName shapes;
  for (const NamedSlice& slice : slices) {
    std::vector<int64_t>& extents = shapes[slice.name];
    for (int i = 0; i < slice.shape.rank(); ++i) extents.push_back(slice.shape[i]);
  }
  return shapes;
}

ShapeByName shapes_in_files(const std::vector<NamedSlice>& slices) {
  ShapeByName shapes;
  for (const NamedSlice& slice : slices) shapes[slice.name] = file_extents(slice);
  return shapes;
}

ShapeByName shapes_of(const SafetensorsFile& file) {
  ShapeByName shapes;
  for (const SafetensorsEntry& entry : file.header().entries) shapes[entry.name] = entry.shape;
  return shapes;
}

std::set<std::string> names_of(const ShapeByName& shapes) {
  std::set<std::string> names;
  for (const auto& [name, shape] : shapes) names.insert(name);
  return names;
}

PlainTensors plain_tensors(const SafetensorsFile& file, const std::set<std::string>& known) {
  const ShapeByName all = shapes_of(file);
  const std::set<std::string> names = names_of(all);
  const PlainNames plain = plain_names({names.begin(), names.end()}, known, file.path());
  PlainTensors tensors{.shapes = {}, .name_in_file = {}, .note = plain.note};
  for (const auto& [name, shape] : all) {
    const std::string& without = plain.of.at(name);
    if (is_bookkeeping(without)) continue;
    tensors.shapes[without] = shape;
    tensors.name_in_file[without] = name;
  }
  return tensors;
}

bool is_bookkeeping(const std::string& name) {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

std::vector<std::string> list_mismatches(const ShapeByName& found, const ShapeByName& expected) {
  std::vector<std::string> lines;
  for (const auto& [name, shape] : expected) {
    const auto at = found.find(name);
    if (at == found.end()) {
      lines.push_back(
          fmt::format("tensor {} of shape {} is missing", quote_name(name), shape_text(shape)));
    } else if (at->second != shape) {
      lines.push_back(shape_mismatch(name, at->second, shape));
    }
  }
  for (const auto& [name, shape] : found) {
    if (expected.count(name) == 0)
      lines.push_back(fmt::format(
          "the model has no tensor {} (of shape {})", quote_name(name), shape_text(shape)));
  }
  return lines;
}

void refuse_mismatches(const std::string& origin,
                       const std::vector<std::string>& mismatches,
                       const std::string& whose,
                       const std::string& hint) {
  if (mismatches.empty()) return;
  throw CheckpointError("{}: {} tensor{} not match {}: {}{}",
                        origin,
                        mismatches.size(),
                        mismatches.size() == 1 ? " does" : "s do",
                        whose,
                        mismatches.front(),
                        hint);
}

void require_match(const ShapeByName& found,
                   const ShapeByName& expected,
                   const std::string& origin) {
  std::vector<std::string> missing, unexpected;
  for (const auto& [name, shape] : expected) {
    const auto at = found.find(name);
    if (at == found.end()) {
      missing.push_back(name);
    } else if (at->second != shape) {
      throw CheckpointError("{}: {}", origin, shape_mismatch(name, at->second, shape));
    }
  }
  for (const auto& [name, shape] : found) {
    if (expected.count(name) == 0) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return;
  if (missing.size() == expected.size() && !missing.empty())
    throw CheckpointError("{}: {}", origin, compare_names(unexpected, names_of(expected)));
  throw CheckpointError("{}: its tensors do not match the model: {}{}{}",
                        origin,
                        missing.empty() ? "" : "missing " + name_list(missing),
                        missing.empty() || unexpected.empty() ? "" : "; ",
                        unexpected.empty() ? "" : "the model has no " + name_list(unexpected));
}

}  // namespace lockstep::checkpoint
