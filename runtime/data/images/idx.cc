#include "runtime/data/images/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/config/image_normalisation.h"
#include "runtime/config/limits.h"
#include "runtime/data/big_endian.h"
#include "runtime/data/class_warnings.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

constexpr int kUnsignedByte = 0x08;
constexpr uint64_t kTooLarge = std::numeric_limits<uint64_t>::max();

// The header of an IDX file.
struct IdxHeader {
  std::vector<int64_t> extents;
  size_t bytes = 0;     // of the header
  uint64_t values = 0;  // of the array; kTooLarge if there are 2^64 or more
};

IdxHeader read_header(std::span<const std::byte> bytes,
                      int min_rank,
                      int max_rank,
                      const std::string& name) {
  if (bytes.size() < 4)
    throw DataError("{}: {} bytes are too few for an IDX file", name, bytes.size());
  const int64_t magic = big_endian_32(bytes, 0);
  const int type = static_cast<int>(magic >> 8 & 0xff);
  const int rank = static_cast<int>(magic & 0xff);
  if (magic >> 16 != 0)
    throw DataError("{}: {}{}",
                    name,
                    is_not(bytes, "an IDX file", TableForm::kImages),
                    file_kind(bytes) ? "" : fmt::format(": it begins with {:#010x}", magic));
  if (type != kUnsignedByte)
    throw DataError(
        "{}: IDX element type {:#04x}; only unsigned bytes (0x08) are allowed", name, type);
  if (rank < min_rank || rank > max_rank)
    throw DataError("{}: an IDX array of {} dimensions; allowed here: {}{}",
                    name,
                    rank,
                    min_rank,
                    max_rank > min_rank ? fmt::format(" to {}", max_rank) : "");
  IdxHeader header;
  header.bytes = 4 + 4 * static_cast<size_t>(rank);
  if (bytes.size() < header.bytes)
    throw DataError(
        "{}: truncated in the IDX header: {} of {} bytes", name, bytes.size(), header.bytes);
  header.values = 1;
  bool huge = false;
  for (int i = 0; i < rank; ++i) {
    header.extents.push_back(big_endian_32(bytes, 4 + 4 * static_cast<size_t>(i)));
    const auto extent = static_cast<uint64_t>(header.extents.back());
    if (extent == 0) throw DataError("{}: dimension {} of the IDX array is 0", name, i);
    huge |= __builtin_mul_overflow(header.values, extent, &header.values);
  }
  if (huge) header.values = kTooLarge;
  return header;
}

LabelCounts counts_of(std::span<const std::byte> labels) {
  LabelCounts counts;
  for (const std::byte label : labels) counts.add(std::to_integer<int32_t>(label));
  return counts;
}

int64_t largest(std::span<const std::byte> labels) {
  return std::to_integer<int64_t>(*std::ranges::max_element(labels));
}

// An IDX file and its array. The array points into the file, whose bytes keep their address if it
// is moved.
struct IdxFile {
  IdxFile(const std::string& dir,
          const std::string& path,
          const std::string& field,
          int min_rank,
          int max_rank)
      : file(dir,
             path,
             field,
             SourceFile::Gzip::kDecompress,
             [&](std::span<const std::byte> first) {
               const IdxHeader header = read_header(first, min_rank, max_rank, path);
               return header.values == kTooLarge ? kTooLarge : header.bytes + header.values;
             }),
        array(parse_idx(file.bytes(), min_rank, max_rank, file.name())) {}
  int64_t count() const { return array.extents[0]; }
  int64_t features() const { return static_cast<int64_t>(array.values.size()) / count(); }

  SourceFile file;
  IdxArray array;
};

struct IdxPair {
  IdxFile images, labels;
};

class IdxDataset final : public Dataset {
 public:
  IdxDataset(IdxPair pair, const IdxConfig& config)
      : images_(std::move(pair.images)), labels_(std::move(pair.labels)) {
    input_ = {DType::kF32, Shape{images_.features()}};
    target_ = {DType::kI32, Shape{}};
    for (int byte = 0; byte < 256; ++byte)
      normalised_[byte] = (static_cast<float>(byte) / 255.0f - config.mean) / config.std;
  }

  int64_t samples() const override { return images_.count(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const int64_t features = input_.shape[0];
    const std::byte* pixels = images_.array.values.data() + key.index * features;
    float* x = reinterpret_cast<float*>(input);  // (F)
    for (int64_t i = 0; i < features; ++i) x[i] = normalised_[std::to_integer<size_t>(pixels[i])];
    const int32_t label = std::to_integer<int32_t>(labels_.array.values[key.index]);
    std::memcpy(target, &label, sizeof(label));
  }

  int32_t label(int64_t index) const override {
    return std::to_integer<int32_t>(labels_.array.values[static_cast<size_t>(index)]);
  }

  int64_t resident_bytes() const override {
    return static_cast<int64_t>(images_.file.bytes().size() + labels_.file.bytes().size());
  }

 private:
  IdxFile images_, labels_;
  std::array<float, 256> normalised_;
};

// Opens images, an array of min_rank to 4 dimensions of which samples are the first, and their
// labels. A negative *classes is set to the largest label + 1; otherwise every label must be below
// it.
IdxPair open_files(const std::string& dir,
                   const std::string& images_path,
                   const std::string& labels_path,
                   const std::string& prefix,
                   int min_rank,
                   int64_t* classes) {
  IdxFile images(dir, images_path, prefix + "_images", min_rank, 4);
  IdxFile labels(dir, labels_path, prefix + "_labels", 1, 1);
  if (images.count() != labels.count())
    throw DataError("{} has {} images but {} has {} labels; the numbers must be equal",
                    images.file.name(),
                    images.count(),
                    labels.file.name(),
                    labels.count());
  if (*classes < 0) *classes = largest(labels.array.values) + 1;
  const auto bad = std::ranges::find_if(
      labels.array.values, [&](std::byte b) { return std::to_integer<int64_t>(b) >= *classes; });
  if (bad != labels.array.values.end())
    throw DataError("{}: label {} of record {} is not below {}, the number of classes{}",
                    labels.file.name(),
                    std::to_integer<int>(*bad),
                    bad - labels.array.values.begin(),
                    *classes,
                    numbering_note(counts_of(labels.array.values)));
  return {std::move(images), std::move(labels)};
}

// Makes a store of images from an array (N, H, W) or (N, H, W, C).
std::shared_ptr<const ImageStore> make_store(IdxPair pair) {
  PixelArray array;
  const std::vector<int64_t>& extents = pair.images.array.extents;
  array.name = pair.images.file.name();
  array.set_shape(extents[1], extents[2], extents.size() == 4 ? extents[3] : 1);
  for (const std::byte label : pair.labels.array.values)
    array.labels.push_back(std::to_integer<int32_t>(label));
  array.heap_bytes = static_cast<int64_t>(pair.images.file.bytes().size());
  auto file = std::make_shared<IdxFile>(std::move(pair.images));
  array.pixels = file->array.values;
  array.owner = std::move(file);
  return make_pixel_store(std::move(array));
}

class Idx final : public DataFormat {
 public:
  Idx(const DataConfig& data, const IdxConfig& idx) : data_(data), idx_(idx) {}

  void check() const override {
    const bool images = !idx_.eval_images.empty(), labels = !idx_.eval_labels.empty();
    if (images != labels)
      throw ConfigError("data.idx.{}: missing, but {} is {}; allowed: both or neither",
                        images ? "eval_labels" : "eval_images",
                        images ? "eval_images" : "eval_labels",
                        in_quotes(images ? idx_.eval_images : idx_.eval_labels));
    const ImageConfig& image = data_.image;
    if (image.mean.empty() && image.std.empty()) return;
    config::refuse_value(
        image.mean.empty() ? "data.image.std" : "data.image.mean",
        fmt::format("[{}]", fmt::join(image.mean.empty() ? image.std : image.mean, ", ")),
        "unset with data.idx, which has fields mean and std of its own");
  }

  void check_for_model(const config::ModelTraits& model) const override {
    constexpr float kHalf = 0.5f;
    if (!model.diffusion || (idx_.mean == kHalf && idx_.std == kHalf)) return;
    config::refuse_value(idx_.mean == kHalf ? "data.idx.std" : "data.idx.mean",
                         idx_.mean == kHalf ? idx_.std : idx_.mean,
                         "0.5 with model.{}, whose pixels are always in [-1, 1]",
                         model.section);
  }

  bool supports(config::ModelInput input) const override {
    return input != config::ModelInput::kTokens;
  }
  bool has_eval() const override { return !idx_.eval_images.empty(); }
  std::vector<std::string> files() const override {
    return {idx_.train_images, idx_.train_labels, idx_.eval_images, idx_.eval_labels};
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    if (model.wants_images()) return open_images(need_train);
    return open_features(model, need_train);
  }

  // Gray images, like MNIST's, with the size that data.image.size gives.
  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    const auto side = static_cast<int>(data_.image.size);
    if (side == 0)
      missing.refuse("the size of its images",
                     missing.model().wants_images() ? "set data.image.size, or " : "");
    PlaceholderData placeholder = missing.with_outputs_of_model("classes");
    placeholder.what += ", gray images";
    placeholder.train = placeholder.eval = {kPlaceholderSamples, ImageSize{side, side}, 1};
    return placeholder;
  }

 private:
  // See open_files().
  IdxPair open_train(int min_rank, int64_t* classes) const {
    return open_files(
        data_.dir, idx_.train_images, idx_.train_labels, "idx.train", min_rank, classes);
  }
  IdxPair open_eval(int min_rank, int64_t* classes) const {
    return open_files(data_.dir, idx_.eval_images, idx_.eval_labels, "idx.eval", min_rank, classes);
  }

  ImageStores open_images(bool need_train) const {
    ImageStores stores;
    stores.kind = "IDX images";
    stores.labels_from = idx_.train_labels;
    int64_t classes = -1;
    if (need_train)
      stores.train = make_store(open_train(3, &classes));
    else
      classes = classes_of_training();
    if (has_eval()) stores.eval = make_store(open_eval(3, &classes));
    stores.classes = classes;
    return stores;
  }

  // The training labels define the number of classes, unless the model has one.
  int64_t classes_of_training() const {
    const IdxFile labels(data_.dir, idx_.train_labels, "idx.train_labels", 1, 1);
    return largest(labels.array.values) + 1;
  }

  // (N, H, W, C); the last extents may be left out.
  config::ImageInputs inputs_of(const IdxArray& array) const {
    std::vector<int64_t> extents = array.extents;
    if (extents.size() == 2) extents.insert(extents.begin() + 1, 1);
    if (extents.size() == 3) extents.push_back(1);
    const auto channels = static_cast<size_t>(extents[3]);
    config::ImageNormalisation by = config::normalisation_of(data_, channels);
    return {extents[1], extents[2], 0, std::move(by.mean), std::move(by.std)};
  }

  // Samples: x (F) f32 = (byte / 255 - mean) / std, with F the product of all extents but the
  // first; label () i32. Memory holds the bytes; they are normalised when read.
  OpenedData open_features(const config::ModelTraits& model, bool need_train) const {
    OpenedData opened;
    DataSummary& summary = opened.summary;
    const auto dataset_of = [&](IdxPair pair) {
      summary.preprocessing.images = inputs_of(pair.images.array);
      return std::make_unique<IdxDataset>(std::move(pair), idx_);
    };
    int64_t classes = -1;
    if (need_train) {
      opened.train = dataset_of(open_train(2, &classes));
      summary.features = opened.train->input().shape[0];
    } else if (model.outputs == 0 && !idx_.train_labels.empty()) {
      classes = classes_of_training();
    }
    if (model.outputs > 0) {
      if (opened.train != nullptr)
        require_numbering_from_0(model, classes, opened.train->label_counts());
      if (classes > model.outputs)
        throw DataError("{}: the largest label is {}; {}, and must be at least {}",
                        idx_.train_labels,
                        classes - 1,
                        model.describe_outputs(),
                        classes);
      classes = model.outputs;
    }
    if (has_eval()) {
      opened.eval = dataset_of(open_eval(2, &classes));
      const int64_t features = opened.eval->input().shape[0];
      if (opened.train != nullptr && features != summary.features)
        throw DataError("{}: images have {} bytes, but those in {} have {}",
                        idx_.eval_images,
                        features,
                        idx_.train_images,
                        summary.features);
      summary.features = features;
    }
    summary.classes = classes;
    summary.labels_from = idx_.train_labels;
    summary.kind = "IDX images";
    summary.details = fmt::format(" of {} bytes, {} classes", summary.features, classes);
    describe(&opened);
    return opened;
  }

  const DataConfig& data_;
  const IdxConfig& idx_;
};

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes,
                   int min_rank,
                   int max_rank,
                   const std::string& name) {
  IdxHeader header = read_header(bytes, min_rank, max_rank, name);
  const auto values = bytes.subspan(header.bytes);
  if (header.values != values.size())
    throw DataError("{}: {}: the IDX header promises {} bytes of values, the file has {}",
                    name,
                    header.values > values.size() ? "truncated" : "too long",
                    header.values == kTooLarge ? "over 2^64" : std::to_string(header.values),
                    values.size());
  return {std::move(header.extents), values};
}

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const IdxConfig& idx) {
  return std::make_unique<Idx>(data, idx);
}

}  // namespace lockstep::data
