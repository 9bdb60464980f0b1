#pragma once
// The interface to the stored images of a data set.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
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

// The classes of an image's pixels.
struct Mask {
  ImageSize size;
  // (height, width); -1: the pixel does not count. Empty: the image has no mask.
  std::vector<int32_t> classes;
};

// Immutable once opened; all methods may be called from several threads at once.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual int64_t count() const = 0;  // >= 1
  virtual int32_t label(int64_t index) const = 0;
  // Whether the target of an image is its mask, in place of its label.
  virtual bool has_masks() const { return false; }
  // Reads the mask of an image into `mask`, whose memory is used again. Throws DataError, which
  // names the mask, if it is damaged or has a number that is no class, and IoError if its file
  // cannot be read.
  virtual void load_mask(int64_t /*index*/, Mask* /*mask*/) const { LOCKSTEP_CHECK(false); }
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
