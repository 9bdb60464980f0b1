// write_file(): a copy of an ONNX file with new elements in some tensors.
//
// The old file is mapped and copied message by message (wire.h), so fields that this program does
// not know stay as they are. rewrite.cc walks from the model through graphs, functions and nodes to
// the tensors and finds those named in `replaced`. TensorWriter decides where a tensor's elements
// go:
//
//   - elements inside the file stay in the field in which they were;
//   - external elements go to the one file TARGET.data, at their old offset if the layout permits;
//   - if the result exceeds `limit_bytes` (protobuf reads at most 2 GiB), it is made a second time
//     with `move_outside`: then tensors of 1 KiB and more become external, too.
//
// The result is a chain of pieces that point into the mapped file and into `replaced`; the elements
// are not copied before they are written. `target` may be `source`: the new file replaces the old
// one by a rename, and the old one stays mapped until then. TARGET.data is renamed before TARGET,
// so TARGET never names a file that does not exist yet. parse_file() checks the old file before
// anything is written.
#include "models/onnx/write/write_file.h"

#include <filesystem>
#include <memory>
#include <vector>

#include "models/onnx/write/tensor_writer.h"
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
                const Additions& additions,
                uint64_t limit_bytes) {
  const MappedFile file = map(source);
  (void)parse_file(file.bytes(), source);
  write_model(file.bytes(), source, target, replaced, additions, limit_bytes);
}

void write_model(Bytes bytes,
                 const std::string& source,
                 const std::string& target,
                 const std::map<std::string, Array>& replaced,
                 const Additions& additions,
                 uint64_t limit_bytes) {
  const std::filesystem::path data = target + ".data";
  const std::string location = data.filename().string();
  auto tensors = std::make_unique<TensorWriter>(source, location, false);
  ByteChain model = rewrite_model(bytes, source, replaced, *tensors, additions);
  if (model.size() > limit_bytes) {
    tensors = std::make_unique<TensorWriter>(source, location, true);
    model = rewrite_model(bytes, source, replaced, *tensors, additions);
  }
  if (model.size() > limit_bytes)
    throw ConfigError(
        "{}: would have {} bytes without its tensors; an ONNX file must have at most {}",
        target,
        model.size(),
        limit_bytes);
  replace_file(target, [&](const std::filesystem::path& unfinished) {
    FileWriter writer(unfinished);
    for (const Bytes piece : model.pieces()) writer.write(piece.data(), piece.size());
    writer.finish();
    if (tensors->outside().empty()) return;
    replace_file(
        data, [&](const std::filesystem::path& path) { write_outside(path, tensors->outside()); });
  });
}

}  // namespace lockstep::onnx
