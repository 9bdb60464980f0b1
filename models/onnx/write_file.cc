#include "models/onnx/write_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/rewrite.h"
#include "runtime/base/file.h"

namespace lockstep::onnx {
namespace {

void write_outside(const std::filesystem::path& path, const std::vector<OutsideElements>& outside) {
  FileWriter writer(path);
  uint64_t end = 0;
  for (const OutsideElements& elements : outside) {
    const std::string zeros(elements.offset - end, '\0');
    writer.write(zeros);
    writer.write(elements.data.get(), elements.bytes);
    end = elements.offset + elements.bytes;
  }
  writer.finish();
}

MappedFile map(const std::string& path) {
  try {
    return MappedFile(path, ExitCode::kUsage);
  } catch (const IoError& error) {
    throw ConfigError("{}", error.what());
  }
}

}  // namespace

void write_file(const std::string& source,
                const std::string& target,
                const std::map<std::string, Array>& replaced,
                uint64_t limit_bytes) {
  const MappedFile file = map(source);
  (void)parse_file(file.bytes(), source);
  const std::filesystem::path data = target + ".data";
  const std::string location = data.filename().string();
  auto tensors = std::make_unique<TensorWriter>(source, location, false);
  Rope rope = rewrite_model(file.bytes(), source, replaced, *tensors);
  if (rope.size() > limit_bytes) {
    tensors = std::make_unique<TensorWriter>(source, location, true);
    rope = rewrite_model(file.bytes(), source, replaced, *tensors);
  }
  if (rope.size() > limit_bytes)
    throw ConfigError(
        "{}: would have {} bytes without its tensors; an ONNX file must have {} at most",
        target,
        rope.size(),
        limit_bytes);
  // The elements appear before the file that needs them, and both once both are whole.
  replace_file(target, [&](const std::filesystem::path& unfinished) {
    FileWriter writer(unfinished);
    for (const Bytes piece : rope.pieces()) writer.write(piece.data(), piece.size());
    writer.finish();
    if (tensors->outside().empty()) return;
    replace_file(
        data, [&](const std::filesystem::path& path) { write_outside(path, tensors->outside()); });
  });
}

}  // namespace lockstep::onnx
