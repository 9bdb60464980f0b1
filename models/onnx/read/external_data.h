#pragma once
// Reads elements of tensors from files beside an ONNX file ("external data").

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {
class MappedFile;
}  // namespace lockstep

namespace lockstep::onnx {

namespace schema {
class TensorProto;
}

// A tensor's reference to its external elements.
struct ExternalReference {
  std::string location;  // path relative to the folder of the ONNX file
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // in bytes
};

// The tensor's reference. `what` describes the tensor and its file, for error messages. Throws
// ConfigError if it has no location, or offset or length are not numbers.
ExternalReference external_reference_of(const schema::TensorProto& tensor, const std::string& what);

// The mapped external files of one ONNX file. They must be in its folder: absolute paths, ".." and
// symbolic links that leave the folder are rejected.
class ExternalData {
 public:
  explicit ExternalData(const std::string& path);

  // Returns `bytes` bytes, which keep the mapped file alive. They are copied if their offset is not
  // a multiple of `alignment`. Throws ConfigError, with `what` in front.
  std::shared_ptr<const std::byte> read(const ExternalReference& reference,
                                        size_t bytes,
                                        size_t alignment,
                                        const std::string& what);

 private:
  std::shared_ptr<const MappedFile> open(const std::string& location, const std::string& what);

  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // by canonical path
  std::map<const MappedFile*, size_t> copied_bytes_;                // of unaligned elements
};

}  // namespace lockstep::onnx
