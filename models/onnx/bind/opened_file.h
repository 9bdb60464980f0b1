#pragma once
// Opened ONNX files. A process reads each file once, however many models use it.

#include <memory>
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

// The config's file; the values that model.onnx.output, losses and predictions name are among its
// outputs.
// Throws ConfigError as read_file() does, if fields of the config do not fit the file, and if a
// pattern of model.onnx.trainable or constant matches nothing.
std::shared_ptr<const OpenedFile> open_file(const OnnxConfig& config);

// Throws ConfigError if several nodes share a parameter as bias or gain and the config does not
// allow it.
void require_unshared(const OpenedFile& opened, const OnnxConfig& config);

// The indexes of the file's outputs that the config names: model.onnx.output, or the first, then
// model.onnx.losses and predictions. Throws ConfigError.
std::vector<size_t> outputs_of(const OpenedFile& opened, const OnnxConfig& config);

}  // namespace lockstep::onnx
