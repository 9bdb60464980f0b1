#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// An ONNX file has fewer bytes than 2 GiB: protobuf's limit.
constexpr size_t kLargestFile = (size_t{1} << 31) - 1;

// What read_file() gives for a file with these bytes at `path`, beside which external data is looked for. The
// bytes may go afterwards.
File parse_file(std::span<const std::byte> bytes, const std::string& path);

}  // namespace lockstep::onnx
