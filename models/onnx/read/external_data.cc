#include "models/onnx/read/external_data.h"

#include <algorithm>
#include <cstring>

#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

namespace fs = std::filesystem;

uint64_t number_of(const std::string& text, const std::string& key, const std::string& what) {
  const auto number = parse_as<uint64_t>(text);
  if (!number)
    throw ConfigError("{}: the {} of its external data is {}; must be a number of bytes",
                      what,
                      key,
                      quote_name(text));
  return *number;
}

constexpr size_t kMaxCopies = 2;

// Whether `path` is in `folder`; both are canonical.
bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [ours, theirs] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return ours == folder.end() && theirs != path.end();
}

}  // namespace

ExternalReference external_reference_of(const schema::TensorProto& tensor,
                                        const std::string& what) {
  ExternalReference reference;
  for (const schema::StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") reference.location = entry.value();
    if (entry.key() == "offset") reference.offset = number_of(entry.value(), "offset", what);
    if (entry.key() == "length") reference.length = number_of(entry.value(), "length", what);
  }
  if (reference.location.empty())
    throw ConfigError("{}: its elements are external, but it has no location; must name a file",
                      what);
  return reference;
}

ExternalData::ExternalData(const std::string& path) : folder_(fs::path(path).parent_path()) {
  if (folder_.empty()) folder_ = ".";
}

std::shared_ptr<const MappedFile> ExternalData::open(const std::string& location,
                                                     const std::string& what) {
  const fs::path relative = location;
  const bool climbs = std::ranges::find(relative, "..") != relative.end();
  if (relative.is_absolute() || climbs || location.find('\0') != std::string::npos)
    throw ConfigError(
        "{}: its external data is in {}; must be a path within the folder of the file",
        what,
        quote_name(location));
  const fs::path path = folder_ / relative;
  std::error_code missing;
  const fs::path resolved = fs::canonical(path, missing);
  if (missing)
    throw ConfigError("{}: its external data is in {}: {}; the file must be beside the ONNX file",
                      what,
                      quote_name(path.string()),
                      missing.message());
  if (!is_inside(resolved, fs::canonical(folder_, missing)))
    throw ConfigError(
        "{}: its external data is in {}, a link that leaves the folder of the file; must stay "
        "within it",
        what,
        quote_name(location));
  std::shared_ptr<const MappedFile>& file = files_[resolved.string()];
  if (file != nullptr) return file;
  try {
    return file = std::make_shared<const MappedFile>(resolved, ExitCode::kUsage);
  } catch (const IoError& error) {
    throw ConfigError("{}: its external data: {}", what, error.what());
  }
}

std::shared_ptr<const std::byte> ExternalData::read(const ExternalReference& reference,
                                                    size_t bytes,
                                                    size_t alignment,
                                                    const std::string& what) {
  if (reference.length && *reference.length != bytes)
    throw ConfigError("{}: its external data has {} bytes; must have {} for its extents",
                      what,
                      *reference.length,
                      bytes);
  const std::shared_ptr<const MappedFile> file = open(reference.location, what);
  const size_t size = file->bytes().size();
  if (reference.offset > size || bytes > size - reference.offset)
    throw ConfigError("{}: its external data is {} bytes at {} of {}, which has {} bytes",
                      what,
                      bytes,
                      reference.offset,
                      quote_name(reference.location),
                      size);
  const std::byte* data = file->bytes().data() + reference.offset;
  if (reference.offset % alignment == 0) return {file, data};
  // The limit is needed because any number of tensors may refer to the same bytes.
  size_t& copied = copied_bytes_[file.get()];
  copied += bytes;
  if (copied > kMaxCopies * size)
    throw ConfigError(
        "{}: its external data is at offset {} of {}, which is not a multiple of {}; copies of "
        "such unaligned data exceed {} times the file's size, so it must be aligned",
        what,
        reference.offset,
        quote_name(reference.location),
        alignment,
        kMaxCopies);
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes > 0 ? bytes : 1]);
  if (bytes > 0) std::memcpy(copy.get(), data, bytes);
  return {copy, copy.get()};
}

}  // namespace lockstep::onnx
