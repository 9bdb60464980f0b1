#include "runtime/data/images/image_stores.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep::data {
namespace {

class PixelStore final : public ImageStore {
 public:
  explicit PixelStore(PixelArray array) : array_(std::move(array)) {
    stored_ = static_cast<int64_t>(array_.labels.size());
    image_bytes_ = static_cast<size_t>(array_.size.height) *
                   static_cast<size_t>(array_.size.width) * static_cast<size_t>(array_.channels);
    LOCKSTEP_CHECK(stored_ >= 1 && array_.pixels.size() == image_bytes_ * array_.labels.size());
    if (array_.samples == 0) array_.samples = stored_;
  }

  int64_t count() const override { return array_.samples; }
  int32_t label(int64_t index) const override {
    return array_.labels[static_cast<size_t>(index % stored_)];
  }
  bool has_masks() const override { return array_.load_mask != nullptr; }
  void load_mask(int64_t index, Mask* mask) const override {
    array_.load_mask(index % stored_, mask);
  }
  std::string name(int64_t index) const override {
    return fmt::format("{} image {}", array_.name, index);
  }
  int64_t record_of(int64_t index) const override {
    const int64_t stored = index % stored_;
    return array_.records.empty() ? stored : array_.records[static_cast<size_t>(stored)];
  }
  StoredImage load(int64_t index, std::vector<std::byte>& /*buffer*/) const override {
    const auto at = static_cast<size_t>(index % stored_) * image_bytes_;
    return {array_.pixels.subspan(at, image_bytes_), true, array_.size, array_.channels};
  }
  bool encoded() const override { return false; }
  std::optional<ImageSize> common_size() const override { return array_.size; }
  int channels() const override { return array_.channels; }
  int64_t resident_bytes() const override {
    return array_.heap_bytes + static_cast<int64_t>(array_.labels.size() * sizeof(int32_t) +
                                                    array_.records.size() * sizeof(int64_t));
  }

 private:
  PixelArray array_;
  int64_t stored_ = 0;
  size_t image_bytes_ = 0;
};

}  // namespace

void PixelArray::set_shape(int64_t height, int64_t width, int64_t image_channels) {
  constexpr int64_t kMaxSide = 65536, kMaxChannels = 16;
  if (height > kMaxSide || width > kMaxSide || image_channels > kMaxChannels)
    throw DataError(
        "{}: images of {} x {} pixels and {} channels; allowed: up to {} x {} pixels "
        "and {} channels",
        name,
        width,
        height,
        image_channels,
        kMaxSide,
        kMaxSide,
        kMaxChannels);
  size = {static_cast<int>(height), static_cast<int>(width)};
  channels = static_cast<int>(image_channels);
}

std::shared_ptr<const ImageStore> make_pixel_store(PixelArray array) {
  return std::make_shared<PixelStore>(std::move(array));
}

void BadAtOpening::add(const std::string& what) {
  if (config_.bad_records == BadRecords::kFail)
    throw DataError(
        "{} (to continue without it, set data.bad_records to SKIP or REPLACE, or give `data pack` "
        "--skip-bad)",
        what);
  const bool replace = config_.bad_records == BadRecords::kReplace;
  pending_ += replace;
  if (++count_ == 1) first_ = what;
  constexpr int64_t kMaxLogged = 20;
  if (count_ <= kMaxLogged)
    log_warn("{}: {}", what, replace ? "replaced by the next good one" : "skipped");
}

void BadAtOpening::check(int64_t records, const std::string& name) const {
  if (static_cast<double>(count_) <=
      static_cast<double>(config_.max_bad_fraction) * static_cast<double>(records))
    return;
  throw DataError(
      "{}: {} of {} records are bad, more than data.max_bad_fraction = {}; the first: {}",
      name,
      count_,
      records,
      config_.max_bad_fraction,
      first_);
}

}  // namespace lockstep::data
