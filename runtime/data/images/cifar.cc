#include "runtime/data/images/cifar.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/config/limits.h"
#include "runtime/data/file_names.h"
#include "runtime/data/images/image_format.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

constexpr size_t kPlane = size_t{kCifarSide} * kCifarSide;
constexpr size_t kImageBytes = kPlane * kCifarChannels;

CifarLayout layout_of(const CifarConfig& cifar) {
  if (cifar.classes == 10) return {1, 0, 10};
  return cifar.coarse ? CifarLayout{2, 0, 20} : CifarLayout{2, 1, 100};
}

// According to data.bad_records, a record with a bad label fails the run, is skipped, or is
// replaced by the next good record (at the end by the last one).
std::shared_ptr<const ImageStore> open_files(const DataConfig& config,
                                             const CifarLayout& layout,
                                             const std::vector<std::string>& patterns,
                                             const std::string& field,
                                             int64_t* bad_records) {
  const std::vector<std::string> paths = expand_names(patterns, config.dir, "data." + field);
  auto pixels = std::make_shared<std::vector<std::byte>>();
  std::vector<int32_t> labels;
  std::vector<int64_t> record_of;  // (images)
  BadAtOpening bad(config);
  int64_t records = 0;
  const auto take = [&](size_t times, int64_t record, int32_t label, auto&& write) {
    for (; times > 0; --times) {
      pixels->resize(pixels->size() + kImageBytes);
      write(pixels->data() + pixels->size() - kImageBytes);
      labels.push_back(label);
      record_of.push_back(record);
    }
  };
  for (const std::string& path : paths) {
    const SourceFile file(config.dir, path, field, SourceFile::Gzip::kDecompress);
    const int64_t count = count_cifar_records(file.bytes(), layout, file.name());
    pixels->reserve(pixels->size() + static_cast<size_t>(count) * kImageBytes);
    for (int64_t record = 0; record < count; ++record) {
      const int32_t label = cifar_label(file.bytes(), layout, record);
      if (label >= layout.classes) {
        bad.add(fmt::format("{}: record {}: label {} is not below {}, the number of classes",
                            file.name(),
                            record,
                            label,
                            layout.classes));
        continue;
      }
      take(1 + bad.take_pending(), records + record, label, [&](std::byte* to) {
        read_cifar_pixels(file.bytes(), layout, record, to);
      });
    }
    records += count;
  }
  bad.check(records, paths.front());
  *bad_records += bad.count();
  if (labels.empty()) throw DataError("{}: has no good records (data.{})", paths.front(), field);
  take(bad.take_pending(),
       record_of.back(),
       labels.back(),
       [last = pixels->size() - kImageBytes, &pixels](std::byte* to) {
         std::copy_n(pixels->data() + last, kImageBytes, to);
       });
  PixelArray array;
  array.pixels = *pixels;
  array.heap_bytes = static_cast<int64_t>(pixels->capacity());
  array.owner = pixels;
  array.labels = std::move(labels);
  if (bad.count() > 0) array.records = std::move(record_of);
  array.size = {kCifarSide, kCifarSide};
  array.channels = kCifarChannels;
  array.name = paths.front();
  return make_pixel_store(std::move(array));
}

class Cifar final : public ImageFormat<CifarConfig> {
 public:
  using ImageFormat::ImageFormat;

  void check() const override {
    if (config_.classes != 10 && config_.classes != 100)
      config::refuse_value(
          "data.cifar.classes", config_.classes, "10 (CIFAR-10) or 100 (CIFAR-100)");
    if (config_.coarse && config_.classes != 100)
      config::refuse_value("data.cifar.coarse", "true", "false unless data.cifar.classes is 100");
  }

  // CIFAR always has the same size.
  PlaceholderData make_placeholder(const MissingFile& /*missing*/) const override {
    const auto images = [](int64_t count) {
      const int64_t bytes = count * static_cast<int64_t>(kImageBytes + sizeof(int32_t));
      return PlaceholderImages{count, ImageSize{kCifarSide, kCifarSide}, kCifarChannels, bytes};
    };
    return {fmt::format("all of CIFAR-{}", config_.classes),
            layout_of(config_).classes,
            images(50'000),
            images(10'000),
            /*in_memory_counted=*/true};
  }

 protected:
  ImageStores open_images(bool need_train) const override {
    const CifarLayout layout = layout_of(config_);
    ImageStores stores;
    stores.classes = layout.classes;
    stores.kind = fmt::format("CIFAR-{}{}", config_.classes, config_.coarse ? " (coarse)" : "");
    if (need_train)
      stores.train = open_files(data_, layout, config_.train, "cifar.train", &stores.bad_records);
    if (!config_.eval.empty())
      stores.eval = open_files(data_, layout, config_.eval, "cifar.eval", &stores.bad_records);
    return stores;
  }
};

}  // namespace

int64_t count_cifar_records(std::span<const std::byte> file,
                            const CifarLayout& layout,
                            const std::string& name) {
  const size_t record = layout.record_bytes();
  const int classes = layout.label_bytes == 1 ? 10 : 100;
  if (file.size() % record != 0 && file_kind(file))
    throw DataError("{}: {}; give the .bin files of the binary version (cifar-{}-binary.tar.gz)",
                    name,
                    is_not(file, fmt::format("a file in the binary layout of CIFAR-{}", classes)),
                    classes);
  if (file.empty() || file.size() % record != 0)
    throw DataError(
        "{}: the size of {} bytes is not a multiple of {} bytes, the size of a record in the "
        "binary layout of CIFAR-{}",
        name,
        file.size(),
        record,
        classes);
  return static_cast<int64_t>(file.size() / record);
}

int32_t cifar_label(std::span<const std::byte> file, const CifarLayout& layout, int64_t record) {
  const size_t at = static_cast<size_t>(record) * layout.record_bytes();
  return std::to_integer<int32_t>(file[at + static_cast<size_t>(layout.label_at)]);
}

void read_cifar_pixels(std::span<const std::byte> file,
                       const CifarLayout& layout,
                       int64_t record,
                       std::byte* pixels) {
  const std::byte* planes = file.data() + static_cast<size_t>(record) * layout.record_bytes() +
                            static_cast<size_t>(layout.label_bytes);
  for (size_t i = 0; i < kPlane; ++i)
    for (size_t c = 0; c < kCifarChannels; ++c)
      pixels[i * kCifarChannels + c] = planes[c * kPlane + i];
}

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const CifarConfig& cifar) {
  return std::make_unique<Cifar>(data, cifar);
}

}  // namespace lockstep::data
