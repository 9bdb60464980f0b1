#include "runtime/data/images/image_dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxLogged = 20;  // bad images; further ones are only counted

// Adds the classes of an image's pixels. read() reports bad masks.
void update_with_mask(const ImageStore& store, int64_t index, Checksum* checksum) {
  Mask& mask = ImagePipeline::of_this_thread().mask();
  try {
    store.load_mask(index, &mask);
    checksum->update(&mask.size, sizeof(mask.size));
    checksum->update(mask.classes.data(), mask.classes.size() * sizeof(int32_t));
  } catch (const DataError&) {
  } catch (const IoError& error) {
    throw DataError("{}: {}", store.name(index), error.what());
  }
}

}  // namespace

ImageDataset::ImageDataset(std::shared_ptr<const ImageStore> store,
                           PipelineSettings settings,
                           const DataConfig& config,
                           uint64_t seed)
    : store_(std::move(store)),
      settings_(std::move(settings)),
      policy_(config.bad_records),
      max_bad_fraction_(config.max_bad_fraction),
      seed_(seed),
      known_bad_(static_cast<size_t>((store_->count() + 63) / 64)) {
  input_ = {DType::kU8, Shape{settings_.output.height, settings_.output.width, store_->channels()}};
  target_ = {DType::kI32, Shape{}};
  if (store_->has_masks()) target_.shape = Shape{settings_.output.height, settings_.output.width};
}

void ImageDataset::read(const SampleKey& key, std::byte* input, std::byte* target) const {
  const int64_t count = store_->count();
  for (int64_t tried = 0; tried < count; ++tried) {
    const int64_t index = (key.index + tried) % count;
    if (!known_bad(index) && make_sample(key, index, input, target, nullptr)) return;
  }
  throw DataError("none of the {} images can be decoded; the first is {}", count, store_->name(0));
}

bool ImageDataset::make_sample(const SampleKey& key,
                               int64_t index,
                               std::byte* input,
                               std::byte* target,
                               PipelineTimes* times) const {
  const bool masks = store_->has_masks();
  try {
    ImagePipeline::of_this_thread().run(settings_,
                                        *store_,
                                        index,
                                        key.index,
                                        key.epoch,
                                        seed_,
                                        key.augment,
                                        reinterpret_cast<uint8_t*>(input),
                                        masks ? reinterpret_cast<int32_t*>(target) : nullptr,
                                        times);
    const int32_t label = store_->label(index);
    if (!masks && target != nullptr) std::memcpy(target, &label, sizeof(label));
    return true;
  } catch (const DataError& error) {
    note_bad(index, error.what());
    return false;
  } catch (const IoError& error) {
    throw DataError("{}: {}", store_->name(index), error.what());
  }
}

bool ImageDataset::known_bad(int64_t index) const {
  const uint64_t word = known_bad_[static_cast<size_t>(index / 64)].load(std::memory_order_relaxed);
  return (word >> (index % 64) & 1) != 0;
}

void ImageDataset::note_bad(int64_t index, const char* what) const {
  const std::string name = store_->name(index);
  if (policy_ == BadRecords::kFail)
    throw DataError("{}: {} (set data.bad_records to SKIP to continue without it)", name, what);
  const uint64_t bit = uint64_t{1} << (index % 64);
  if ((known_bad_[static_cast<size_t>(index / 64)].fetch_or(bit) & bit) != 0) return;
  const int64_t bad = ++bad_;
  const int64_t count = store_->count();
  if (static_cast<double>(bad) >
      static_cast<double>(max_bad_fraction_) * static_cast<double>(count))
    throw DataError("{}: {}; {} of {} images are bad, more than data.max_bad_fraction = {} allows",
                    name,
                    what,
                    bad,
                    count,
                    max_bad_fraction_);
  if (bad <= kMaxLogged) log_warn("{}: {}; replaced by the next good image", name, what);
}

// A checksum of the files' contents, their masks and all labels, not of names. Some files are read
// first to estimate how many of them reach the limit of bytes.
uint64_t ImageDataset::checksum() const {
  constexpr int64_t kMaxFileBytes = kMaxHashedBytes / 8;  // reading files from a disk is slow
  constexpr int64_t kTried = 32;
  const int64_t count = store_->count();
  std::vector<std::byte> buffer;
  const auto bytes_of = [&](int64_t index) {
    try {
      return store_->load(index, buffer).bytes;
    } catch (const DataError&) {
      return std::span<const std::byte>();  // read() reports bad images
    } catch (const IoError& error) {
      throw DataError("{}: {}", store_->name(index), error.what());
    }
  };
  int64_t tried_bytes = 0;
  const int64_t tried = std::min(kTried, count);
  for (int64_t i = 0; i < tried; ++i)
    tried_bytes += static_cast<int64_t>(bytes_of(i * (count / tried)).size());
  const int64_t stride = std::max<int64_t>(1, tried_bytes / tried * count / kMaxFileBytes);
  Checksum checksum;
  checksum.update(&count, sizeof(count));
  for (int64_t index = 0; index < count; ++index) {
    const int32_t label = store_->label(index);
    checksum.update(&label, sizeof(label));
    if (index % stride != 0) continue;
    const std::span<const std::byte> bytes = bytes_of(index);
    checksum.update(bytes.data(), bytes.size());
    if (store_->has_masks()) update_with_mask(*store_, index, &checksum);
  }
  return checksum.value();
}

int64_t ImageDataset::resident_bytes() const {
  return store_->resident_bytes() + static_cast<int64_t>(known_bad_.size() * sizeof(uint64_t));
}

}  // namespace lockstep::data
