#pragma once
// The opened image stores of a data set, for training and evaluation.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image_store.h"

namespace lockstep::data {

class TargetRecords;  // named_targets.h

struct ImageStores {
  std::shared_ptr<const ImageStore> train;  // null unless asked for
  std::shared_ptr<const ImageStore> eval;   // null if the config has no evaluation data
  // Their targets by name, in place of labels; null: none.
  std::shared_ptr<const TargetRecords> train_targets = nullptr, eval_targets = nullptr;
  int64_t classes = 0;
  int64_t bad_records = 0;               // skipped or replaced when the files were opened
  std::string kind;                      // for the log: "CIFAR-10"
  std::vector<std::string> class_names;  // (classes), or empty
  std::string labels_from;               // see DataSummary
  std::string held_out;                  // see DataSummary
  std::vector<std::string> warnings;     // see DataSummary::warnings
};

// Pixels and labels in memory.
struct PixelArray {
  // Sets size and channels; `name` must be set before. Throws DataError if they exceed the limits.
  void set_shape(int64_t height, int64_t width, int64_t image_channels);

  std::shared_ptr<const void> owner;  // of the pixels
  std::span<const std::byte> pixels;  // (stored, height, width, channels)
  std::vector<int32_t> labels;        // (stored)
  // Writes the mask of a stored image, if these have masks; see ImageStore::load_mask().
  std::function<void(int64_t index, Mask* mask)> load_mask = {};
  std::vector<int64_t> records = {};  // (stored) see Dataset::record_of(); empty: their indices
  ImageSize size;
  int channels = 0;
  std::string name;        // of the file, for messages
  int64_t samples = 0;     // larger numbers repeat the stored images; 0: each once
  int64_t heap_bytes = 0;  // of the pixels
};
std::shared_ptr<const ImageStore> make_pixel_store(PixelArray array);

// Handles bad records that are found when files are opened, according to data.bad_records: throws
// DataError with FAIL, otherwise logs and counts them.
class BadAtOpening {
 public:
  explicit BadAtOpening(const DataConfig& config) : config_(config) {}
  void add(const std::string& what);
  // How many additional copies of the next good record must be added: with REPLACE, one for each
  // bad record since the last call.
  size_t take_pending() { return std::exchange(pending_, 0); }
  // Throws DataError if more than data.max_bad_fraction of all `records`, good and bad, are bad.
  void check(int64_t records, const std::string& name) const;
  int64_t count() const { return count_; }

 private:
  const DataConfig& config_;
  int64_t count_ = 0;
  size_t pending_ = 0;
  std::string first_;
};

}  // namespace lockstep::data
