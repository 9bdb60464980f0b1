#pragma once
// Elements of tensors that lie in files beside an ONNX file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {
class MappedFile;
}

namespace lockstep::onnx {

namespace schema {
class TensorProto;
}

// Where a tensor says that its elements are.
struct ExternalPlace {
  std::string location;  // a path from the folder of the ONNX file
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // in bytes
};

// The place that the tensor `what` (with the file's path, for messages) tells. Throws ConfigError
// where it tells none or no numbers.
ExternalPlace external_place_of(const schema::TensorProto& tensor, const std::string& what);

// The mapped files of one ONNX file. A file must lie in its folder: no absolute path, no "..", no symbolic
// link that leaves it.
class ExternalData {
 public:
  explicit ExternalData(const std::string& path);

  // `bytes` bytes at the place, which keep the map alive. They are copied where they lie at no multiple
  // of `alignment`. Throws ConfigError, beginning with `what`.
  std::shared_ptr<const std::byte> read(const ExternalPlace& place,
                                        size_t bytes,
                                        size_t alignment,
                                        const std::string& what);

 private:
  std::shared_ptr<const MappedFile> open(const std::string& location, const std::string& what);

  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // by path, without links
  std::map<const MappedFile*, size_t> copied_bytes_;                // of what lies at no multiple
};

}  // namespace lockstep::onnx
