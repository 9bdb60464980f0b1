#include "models/onnx/freed_batch.h"

#include <map>
#include <mutex>
#include <utility>

#include "models/onnx/bind/fixed_batch.h"
#include "models/onnx/bind/free_batch.h"
#include "models/onnx/samples/mixing.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

// Why the freed file is not the same network for each sample; empty: it is.
std::string problem_of(const OpenedFile& freed, int64_t batch) {
  const auto bound = [&](int64_t samples) {
    return bind(freed.file, freed.classes, options_with_batch(freed.file, samples));
  };
  const Network two = bound(2 * batch), four = bound(4 * batch);
  for (const int output : four.outputs) {
    const Extents& extents = four.values[static_cast<size_t>(output)].extents;
    if (extents.empty() || extents[0] % (4 * batch) != 0)
      return fmt::format("output \"{}\" has no axis of samples",
                         four.values[static_cast<size_t>(output)].name);
  }
  const BoundNetwork other{two, 2 * batch};
  const std::string node = mixing_node({four, 4 * batch}, &other, four.outputs);
  return node.empty() ? "" : fmt::format("samples would mix at {}", node);
}

std::shared_ptr<const OpenedFile> freed(const std::shared_ptr<const OpenedFile>& opened) {
  const File& file = opened->file;
  const int64_t batch = fixed_batch(file);
  if (batch == 0) return opened;
  for (const int input : file.inputs) {
    const FileValue& value = file.values[static_cast<size_t>(input)];
    if (value.extents.empty() || value.extents[0].extent != batch) return opened;
  }
  FreedFile result = free_batch(file, opened->classes, batch);
  if (result.reason.empty()) {
    Classes classes = opened->classes;
    classes.parameter.resize(result.file.values.size(), false);
    classes.source.resize(classes.source.empty() ? 0 : result.file.values.size());
    for (auto& [value, nodes] : classes.vector_nodes)
      for (int& node : nodes) node = result.node_numbers[static_cast<size_t>(node)];
    auto free = std::make_shared<OpenedFile>(std::make_shared<const File>(std::move(result.file)),
                                             std::move(classes));
    try {
      result.reason = problem_of(*free, batch);
    } catch (const ConfigError& error) {
      result.reason = error.what();
    }
    if (result.reason.empty()) {
      log_info(
          "{}: was exported with a fixed batch of {}; its batch axis is free now{}",
          file.path,
          batch,
          result.changes > 0 ? fmt::format(" ({} changed)", counted(result.changes, "node")) : "");
      return free;
    }
  }
  const std::string prefix = file.path + ": ";
  log_info("{}the fixed batch of {} cannot be freed: {}; {}",
           prefix,
           batch,
           result.reason.substr(result.reason.starts_with(prefix) ? prefix.size() : 0),
           condition_of_batch(file, batch));
  return opened;
}

}  // namespace

std::shared_ptr<const OpenedFile> open_with_free_batch(const OnnxConfig& config) {
  static std::mutex mutex;
  static std::map<std::shared_ptr<const OpenedFile>, std::shared_ptr<const OpenedFile>> found;
  const std::shared_ptr<const OpenedFile> opened = open_file(config);
  const std::lock_guard lock(mutex);
  std::shared_ptr<const OpenedFile>& result = found[opened];
  if (result == nullptr) result = freed(opened);
  return result;
}

void report_fixed_batch(const OnnxConfig& config, const std::string& path) {
  const std::shared_ptr<const OpenedFile> opened = open_file(config);
  const int64_t batch = fixed_batch(opened->file);
  if (batch == 0) return;
  log_info("{}: takes {} at once, as {} does; this export of the network leaves the batch open: {}",
           path,
           counted(batch, "sample"),
           config.file,
           export_line(opened->file));
}

}  // namespace lockstep::onnx
