#pragma once
// The images of a data set, training and evaluation, as a format opens them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image_store.h"

namespace lockstep {

struct ImageStores {
  std::shared_ptr<const ImageStore> train;  // null unless asked for
  std::shared_ptr<const ImageStore> eval;   // null when the config has no evaluation data
  int64_t classes = 0;
  int64_t bad_records = 0;               // left out or replaced at opening
  std::string kind;                      // for the log: "CIFAR-10"
  std::vector<std::string> class_names;  // (classes), or empty
};

// Pixels and labels in memory.
struct PixelArray {
  // Sets size and channels; `name` must be set. Throws DataError where that is too much.
  void set_shape(int64_t height, int64_t width, int64_t image_channels);

  std::shared_ptr<const void> owner;  // of the pixels
  std::span<const std::byte> pixels;  // (stored, height, width, channels)
  std::vector<int32_t> labels;        // (stored)
  ImageSize size;
  int channels = 0;
  std::string name;        // of the file, for messages
  int64_t samples = 0;     // 0: as many as are stored; more repeat them
  int64_t heap_bytes = 0;  // of the pixels
};
std::shared_ptr<const ImageStore> make_pixel_store(PixelArray array);

// Bad records that are found at opening: throws DataError with FAIL; else counts and tells them,
// and at the end throws where they are too many.
class BadAtOpening {
 public:
  explicit BadAtOpening(const DataConfig& config) : config_(config) {}
  void add(const std::string& what);
  // How often the next good record is to be repeated: with REPLACE, for each bad one before it.
  size_t take_waiting() { return std::exchange(waiting_, 0); }
  void check(int64_t records, const std::string& name) const;  // of all, bad ones included
  int64_t count() const { return count_; }

 private:
  const DataConfig& config_;
  int64_t count_ = 0;
  size_t waiting_ = 0;
  std::string first_;
};

}  // namespace lockstep
