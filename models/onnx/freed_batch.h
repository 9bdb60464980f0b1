#pragma once
// Opened files whose batch axis is free: see bind/free_batch.h.

#include <memory>
#include <string>

#include "models/onnx/bind/opened_file.h"

namespace lockstep::onnx {

// The config's file as open_file() has it. If its inputs have a fixed batch, that axis is freed, so
// that the network accepts any batch; the log reports that, or why it is impossible together with
// the export that leaves the axis open.
std::shared_ptr<const OpenedFile> open_with_free_batch(const OnnxConfig& config);

// Logs that `path`, a copy of the config's file with other weights, has a fixed batch, if it has.
void report_fixed_batch(const OnnxConfig& config, const std::string& path);

}  // namespace lockstep::onnx
