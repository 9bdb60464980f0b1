#pragma once
// Where the images of a data set lie, before anything is done to them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/images/image.h"
#include "runtime/data/sample_order.h"

namespace lockstep {

// One image as stored: a JPEG or PNG file, or pixels (height, width, channels) without gaps.
struct StoredImage {
  std::span<const std::byte> bytes;
  bool pixels = false;
  ImageSize size;    // of pixels
  int channels = 0;  // of pixels
};

// Immutable once opened; all methods may be called from several threads at once.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual int64_t count() const = 0;  // >= 1
  virtual int32_t label(int64_t index) const = 0;
  // File, member or record, for messages.
  virtual std::string name(int64_t index) const = 0;
  // As Dataset::files().
  virtual std::vector<std::string> files() const { return {}; }
  // The bytes lie in the store or in `buffer`, which the caller keeps from image to image.
  // Throws DataError, without a name, when the image itself is damaged, IoError when its file
  // cannot be read.
  virtual StoredImage load(int64_t index, std::vector<std::byte>& buffer) const = 0;
  // Whether load() gives JPEG or PNG files.
  virtual bool encoded() const = 0;
  // Size of all images, where it is one.
  virtual std::optional<ImageSize> common_size() const { return std::nullopt; }
  virtual int channels() const { return 3; }
  // Bytes on the heap; files that are mapped and read here and there need not stay in memory and do
  // not count.
  virtual int64_t resident_bytes() const = 0;
  // The order that suits the way it is stored.
  virtual SampleOrder order() const { return {.samples = count()}; }
};

}  // namespace lockstep
