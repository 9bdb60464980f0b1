#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/data/images/image_format.h"
#include "runtime/data/images/record_file.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

class RecordStore final : public ImageStore {
 public:
  RecordStore(SourceFile file, std::vector<RecordEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {
    const RecordEntry& first = entries_.front();
    uniform_ = first.height > 0;
    for (const RecordEntry& entry : entries_) {
      encoded_ |= entry.height == 0;
      uniform_ &= entry.height == first.height && entry.width == first.width;
    }
  }

  int64_t count() const override { return static_cast<int64_t>(entries_.size()); }
  int32_t label(int64_t index) const override { return entries_[static_cast<size_t>(index)].label; }
  std::string name(int64_t index) const override {
    return fmt::format("{}: record {}", file_.name(), index);
  }
  StoredImage load(int64_t index, std::vector<std::byte>& /*buffer*/) const override {
    const RecordEntry& entry = entries_[static_cast<size_t>(index)];
    StoredImage image;
    image.bytes = file_.bytes().subspan(entry.offset, entry.bytes);
    if (checksum_of(image.bytes) != entry.checksum)
      throw DataError("damaged: its checksum is wrong");
    image.pixels = entry.height > 0;
    image.size = {static_cast<int>(entry.height), static_cast<int>(entry.width)};
    image.channels = 3;
    return image;
  }
  bool encoded() const override { return encoded_; }
  std::optional<ImageSize> common_size() const override {
    if (!uniform_) return std::nullopt;
    return ImageSize{static_cast<int>(entries_.front().height),
                     static_cast<int>(entries_.front().width)};
  }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(entries_.capacity() * sizeof(RecordEntry));
  }

 private:
  SourceFile file_;
  std::vector<RecordEntry> entries_;
  bool encoded_ = false, uniform_ = false;
};

// Throws DataError unless the classes of an evaluation file are the first ones of the training
// file, with the same names.
void check_classes(const RecordIndex& index, const std::string& name, const ImageStores& stores) {
  if (index.classes > stores.classes)
    throw DataError("{}: has {} classes; allowed: up to {}, the number in the training file",
                    name,
                    index.classes,
                    stores.classes);
  const size_t named = std::min(index.class_names.size(), stores.class_names.size());
  for (size_t c = 0; c < named; ++c)
    if (normal_name(index.class_names[c]) != normal_name(stores.class_names[c]))
      throw DataError("{}: class {} is {}, but {} in the training file",
                      name,
                      c,
                      spell_out(index.class_names[c]),
                      spell_out(stores.class_names[c]));
}

std::shared_ptr<const ImageStore> open_file(const DataConfig& config,
                                            const std::string& path,
                                            const std::string& field,
                                            ImageStores* stores) {
  SourceFile file(config.dir, path, field, SourceFile::Gzip::kNever);
  RecordIndex index = parse_record_file(file.bytes(), file.name());
  if (stores->classes == 0) {
    stores->classes = index.classes;
    stores->class_names = std::move(index.class_names);
  } else {
    check_classes(index, file.name(), *stores);
  }
  return std::make_shared<RecordStore>(std::move(file), std::move(index.entries));
}

class Records final : public ImageFormat<RecordsConfig> {
 public:
  using ImageFormat::ImageFormat;

  std::optional<DataSource> source_at(const std::string& path) const override {
    if (!is_record_file(path)) return std::nullopt;
    RecordsConfig records;
    records.train = path;
    return records;
  }

 protected:
  ImageStores open_images(bool need_train) const override {
    ImageStores stores;
    stores.kind = "packed records";
    if (need_train || config_.eval.empty())
      stores.train = open_file(data_, config_.train, "records.train", &stores);
    if (!config_.eval.empty())
      stores.eval = open_file(data_, config_.eval, "records.eval", &stores);
    if (!need_train) stores.train = nullptr;
    return stores;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const RecordsConfig& records) {
  return std::make_unique<Records>(data, records);
}

}  // namespace lockstep::data
