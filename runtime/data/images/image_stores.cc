#include "runtime/data/images/image_stores.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep {
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
  std::string name(int64_t index) const override {
    return fmt::format("{} image {}", array_.name, index);
  }
  StoredImage load(int64_t index, std::vector<std::byte>& /*buffer*/) const override {
    const auto at = static_cast<size_t>(index % stored_) * image_bytes_;
    return {array_.pixels.subspan(at, image_bytes_), true, array_.size, array_.channels};
  }
  bool encoded() const override { return false; }
  std::optional<ImageSize> common_size() const override { return array_.size; }
  int channels() const override { return array_.channels; }
  int64_t resident_bytes() const override {
    return array_.heap_bytes + static_cast<int64_t>(array_.labels.size() * sizeof(int32_t));
  }

 private:
  PixelArray array_;
  int64_t stored_ = 0;
  size_t image_bytes_ = 0;
};

}  // namespace

void PixelArray::set_shape(int64_t height, int64_t width, int64_t image_channels) {
  constexpr int64_t kMostSide = 65536, kMostChannels = 16;
  if (height > kMostSide || width > kMostSide || image_channels > kMostChannels)
    throw DataError("{}: images of {} x {} pixels and {} channels; allowed: up to {} x {} and {}",
                    name,
                    width,
                    height,
                    image_channels,
                    kMostSide,
                    kMostSide,
                    kMostChannels);
  size = {static_cast<int>(height), static_cast<int>(width)};
  channels = static_cast<int>(image_channels);
}

std::shared_ptr<const ImageStore> make_pixel_store(PixelArray array) {
  return std::make_shared<PixelStore>(std::move(array));
}

void BadAtOpening::add(const std::string& what) {
  if (config_.bad_records == BadRecords::kFail)
    throw DataError(
        "{} (data.bad_records: SKIP or REPLACE, or --skip-bad of `data pack`, would go on)", what);
  const bool replace = config_.bad_records == BadRecords::kReplace;
  waiting_ += replace;
  if (++count_ == 1) first_ = what;
  constexpr int64_t kMaxTold = 20;
  if (count_ <= kMaxTold)
    log_warn("{}: {}", what, replace ? "the next good one takes its place" : "left out");
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

}  // namespace lockstep
