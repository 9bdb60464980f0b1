#pragma once
// Paths in a config. In a file they may be relative to the current folder. In the config that a run
// records they are absolute, so that it holds in every folder.

#include <string>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// `path` from the root, without "." and "..". Links stay as they are named. Empty if `path` is.
std::string absolute_path(const std::string& path);

// Whether two values of a field that is a path name the same file: from the current folder or, if
// only one of them is absolute, by its end ("/old/net.onnx" and "net.onnx"), because the relative
// one was, or will be, used in another folder.
bool same_path(const std::string& one, const std::string& other);

// The config as text, as to_text(), with absolute paths. Files of a data source stay relative to
// data.dir, which is absolute.
std::string recorded_text(const RunConfig& config);

}  // namespace lockstep::config
