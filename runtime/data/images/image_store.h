#pragma once
// The interface to the stored images of a data set.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/images/image.h"
#include "runtime/data/sample_order.h"

namespace lockstep::data {

// One stored image: a JPEG or PNG file, or contiguous pixels (height, width, channels).
struct StoredImage {
  std::span<const std::byte> bytes;
  bool pixels = false;
  ImageSize size;    // only for pixels
  int channels = 0;  // only for pixels
};

// Immutable once opened; all methods may be called from several threads at once.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual int64_t count() const = 0;  // >= 1
  virtual int32_t label(int64_t index) const = 0;
  // The name of the file, member or record, for messages.
  virtual std::string name(int64_t index) const = 0;
  // See Dataset::files().
  virtual std::vector<std::string> files() const { return {}; }
  // The names by which images are held out: those of their files or members, without the folder or
  // the tar file, which may be moved. Empty if images are not files of their own.
  virtual std::vector<std::string> split_names() const { return {}; }
  // See Dataset::record_of().
  virtual int64_t record_of(int64_t index) const { return index; }
  // Returns the image. Its bytes are in the store or in `buffer`, which the caller keeps from image
  // to image. Throws DataError, without a file name, if the image is damaged, and IoError if its
  // file cannot be read.
  virtual StoredImage load(int64_t index, std::vector<std::byte>& buffer) const = 0;
  // Whether load() returns JPEG or PNG files for some of the images.
  virtual bool encoded() const = 0;
  // The size of all images, if they have the same one.
  virtual std::optional<ImageSize> common_size() const { return std::nullopt; }
  virtual int channels() const { return 3; }
  // Bytes on the heap. Mapped files do not count, because their pages need not stay in memory.
  virtual int64_t resident_bytes() const = 0;
  // The order in which the images are best read.
  virtual SampleOrder order() const { return {.samples = count()}; }
};

}  // namespace lockstep::data
