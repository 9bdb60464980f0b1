#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Protobuf limits an ONNX file to less than 2 GiB.
constexpr size_t kLargestFile = (size_t{1} << 31) - 1;

// Like read_file(), for the bytes of a file at `path`; external data is read from the folder of
// `path`. The result does not refer to `bytes`.
File parse_file(std::span<const std::byte> bytes, const std::string& path);

}  // namespace lockstep::onnx
