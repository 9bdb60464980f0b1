#pragma once
// Files that are read once, however often a config that names them is asked about.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/config/run_config.h"

namespace lockstep::onnx {

struct OpenedFile {
  OpenedFile(std::shared_ptr<const File> file_of, Classes classes_of)
      : owned(std::move(file_of)), file(*owned), classes(std::move(classes_of)) {}

  std::shared_ptr<const File> owned;
  const File& file;
  Classes classes;
};

// The config's file, whose outputs have the value that model.onnx.output names among them. Throws
// ConfigError, as read_file(), where it is no network or other fields do not go with it, and where a pattern of
// model.onnx.trainable or constant finds nothing; see check_shared.
std::shared_ptr<const OpenedFile> open_file(const OnnxConfig& config);

// Refuses parameters that several nodes share as bias or gain, where the config does not allow it.
void check_shared(const OpenedFile& opened, const OnnxConfig& config);

// The places among the file's outputs of those that the config names: model.onnx.output, or the first,
// then model.onnx.losses. Throws ConfigError.
std::vector<size_t> outputs_of(const OpenedFile& opened, const OnnxConfig& config);

}  // namespace lockstep::onnx
