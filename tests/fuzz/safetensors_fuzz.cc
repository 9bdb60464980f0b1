// Safetensors headers: finds reads outside the file, sizes that are believed, and files that are
// accepted though their tensors are not the whole file exactly once.

#include "runtime/checkpoint/format/safetensors.h"

#include <cstring>

#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

std::string file_text(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + std::string(data_bytes, 'd');
}

}  // namespace

std::vector<std::string> seed_inputs() {
  return {
      file_text("{}", 0),
      file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )", 8),
      file_text(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},)"
          R"("b":{"dtype":"I64","shape":[],"data_offsets":[4,12]},)"
          R"("c":{"dtype":"U8","shape":[0,3],"data_offsets":[12,12]}})",
          12),
  };
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const checkpoint::SafetensorsHeader header =
        checkpoint::parse_safetensors_header(bytes, size, "input");
    uint64_t position = 0;
    for (const checkpoint::SafetensorsEntry& entry : header.entries) {
      int64_t elements = 1;
      for (int64_t extent : entry.shape) elements *= extent;
      if (entry.begin != position || entry.end < entry.begin) fuzz::fail("a hole or an overlap");
      if (elements != entry.elements) fuzz::fail("elements are not the product of the shape");
      if (elements != 0 && (entry.end - entry.begin) % static_cast<uint64_t>(elements) != 0) {
        fuzz::fail("the size is no multiple of the elements");
      }
      position = entry.end;
    }
    if (header.data_start + position != size) fuzz::fail("the tensors do not end with the file");
  } catch (const CheckpointError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos)
      fuzz::fail("a message of two lines");
  }
  return 0;
}
