// data.masked_images: folders of images and of PNG masks with the class of each pixel.

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/format.h"
#include "runtime/data/held_out.h"
#include "runtime/data/images/folder_store.h"
#include "runtime/data/images/masks.h"
#include "runtime/data/images/png.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// "a/b.png" for "a/b.jpg".
std::string mask_name(const std::string& image) {
  return fs::path(image).replace_extension(".png").string();
}

// The image NAME.jpg or NAME.png has the mask NAME.png in another folder.
class MaskedStore final : public FolderStore {
 public:
  MaskedStore(std::string root, std::string masks, MaskRules rules)
      : FolderStore(std::move(root)), masks_(std::move(masks)), rules_(std::move(rules)) {}

  void add_pair(const std::string& image, bool has_mask) {
    add(image, 0);
    has_mask_.push_back(has_mask);
  }

  bool has_masks() const override { return true; }
  void load_mask(int64_t index, Mask* mask) const override {
    thread_local PngDecoder decoder;
    thread_local std::vector<std::byte> buffer;
    mask->size = {};
    mask->classes.clear();
    if (!has_mask_[static_cast<size_t>(index)]) return;
    const std::string path = masks_ + "/" + mask_name(file(index));
    try {
      const std::span<const std::byte> bytes = read_into(path, buffer);
      if (!PngDecoder::is_png(bytes)) throw DataError("is not a PNG file");
      const PixelView view = decoder.decode_numbers(bytes);
      mask->size = view.size;
      const int64_t width = view.size.width, pixels = view.size.height * width;
      mask->classes.resize(static_cast<size_t>(pixels));
      // A class for each number, which is refused only if a pixel has it.
      constexpr int32_t kRefused = -2;
      std::array<int32_t, 256> class_of;
      for (int number = 0; number < 256; ++number)
        class_of[static_cast<size_t>(number)] =
            number < rules_.classes || number == rules_.ignored || rules_.any_number
                ? rules_.class_of(number, 0, width)
                : kRefused;
      for (int64_t i = 0; i < pixels; ++i) {
        const int32_t found = class_of[view.origin[i]];
        if (found == kRefused) rules_.class_of(view.origin[i], i, width);
        mask->classes[static_cast<size_t>(i)] = found;
      }
    } catch (const DataError& error) {
      throw DataError("mask {}: {}", path, error.what());
    }
  }
  int64_t resident_bytes() const override {
    return FolderStore::resident_bytes() + static_cast<int64_t>(has_mask_.capacity() / 8);
  }

 private:
  std::string masks_;
  MaskRules rules_;
  std::vector<bool> has_mask_;
};

// The images of a folder, by the names of their masks.
std::vector<std::string> files_of(const std::string& folder, OtherFiles* others) {
  FolderStore store(folder);
  add_images(folder, "", 0, &store, others);
  store.finish();
  return store.files();
}

class MaskedImages final : public DataFormat {
 public:
  MaskedImages(const DataConfig& data, const MaskedImagesConfig& config)
      : data_(data), config_(config) {}

  void check() const override {
    if (data_.image.size == 0)
      throw ConfigError(
          "data.image.size: missing; allowed: 1..8192, the side of the model's input images");
    if (config_.eval.empty() && !config_.eval_masks.empty())
      throw ConfigError(
          "data.masked_images.eval: missing, but eval_masks is {}; allowed: both or neither",
          in_quotes(config_.eval_masks));
  }
  bool supports(config::ModelInput input) const override {
    return input == config::ModelInput::kImages;
  }
  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kPixelClasses;
  }
  bool has_eval() const override { return !config_.eval.empty(); }
  std::vector<std::string> files() const override {
    return {config_.train, config_.train_masks, config_.eval, config_.eval_masks};
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    if (!config_.eval.empty() && config_.eval_masks.empty())
      throw ConfigError(
          "data.masked_images.eval_masks: missing, but eval is {}; allowed: both or "
          "neither",
          in_quotes(config_.eval));
    BadAtOpening bad(data_);
    ImageStores stores = empty_stores(model);
    if (need_train)
      stores.train = open_pair("train", config_.train, config_.train_masks, &bad, &stores);
    if (has_eval())
      stores.eval = open_pair("eval", config_.eval, config_.eval_masks, &bad, &stores);
    stores.bad_records = bad.count();
    return stores;
  }

  // Images without a mask have no target.
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    ImageStores stores = empty_stores(model);
    if (has_eval())
      stores.eval = open_pair("eval", config_.eval, config_.eval_masks, nullptr, &stores);
    return stores;
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder = missing.with_outputs_of_model("classes");
    if (config_.classes > 0) placeholder.outputs = config_.classes;
    return placeholder;
  }

 private:
  ImageStores empty_stores(const config::ModelTraits& model) const {
    ImageStores stores;
    stores.kind = "images with masks";
    stores.labels_from = config_.train_masks;
    stores.classes = config_.classes > 0 ? config_.classes : model.outputs;
    return stores;
  }

  std::string folder_of(const std::string& path, const std::string& field) const {
    const std::string folder = (fs::path(data_.dir) / path).string();
    std::error_code error;
    if (fs::is_directory(folder, error)) return folder;
    std::string hint = look_alike_hint(folder);
    if (hint.empty()) hint = eval_remedy_for("masked_images." + field);
    throw DataError("data.masked_images.{}: '{}' is not a folder{}", field, folder, hint);
  }

  // Opens the images of a set and finds the mask of each. `bad` gets images without one; null: they
  // have no target.
  std::shared_ptr<const ImageStore> open_pair(const std::string& field,
                                              const std::string& images,
                                              const std::string& masks,
                                              BadAtOpening* bad,
                                              ImageStores* stores) const {
    const std::string root = folder_of(images, field);
    const std::string mask_root = masks.empty() ? "" : folder_of(masks, field + "_masks");
    OtherFiles others, other_masks;
    std::unordered_set<std::string> unused;
    if (!masks.empty())
      for (std::string& name : files_of(mask_root, &other_masks)) unused.insert(std::move(name));
    const std::vector<std::string> files = files_of(root, &others);
    if (files.empty()) throw DataError("{}", others.describe_no_image(root, "it"));
    auto store = std::make_shared<MaskedStore>(
        root,
        mask_root,
        MaskRules{.classes = stores->classes,
                  .ignored = config_.ignore,
                  .any_number = bad == nullptr,
                  .remedy = config_.ignore < 0 ? "; data.masked_images.ignore names a number that "
                                                 "does not count"
                                               : " (data.masked_images.ignore)"});
    std::string before;
    for (const std::string& image : files) {
      const std::string mask = mask_name(image);
      if (mask == before)
        throw DataError(
            "{}/{}: there is another image of that name, with another ending; one mask "
            "belongs to one image",
            root,
            image);
      before = mask;
      const bool found = unused.erase(mask) > 0;
      if (found || bad == nullptr) {
        for (size_t copies = bad == nullptr ? 0 : bad->take_pending(); copies > 0; --copies)
          store->add_pair(image, found);
        store->add_pair(image, found);
        continue;
      }
      bad->add(fmt::format(
          "{}/{}: has no mask; allowed: a mask {}/{} for it", root, image, mask_root, mask));
    }
    if (bad != nullptr) bad->check(static_cast<int64_t>(files.size()), root);
    if (store->count() == 0) throw DataError("{}: no image has a mask in {}", root, mask_root);
    store->finish();
    if (!unused.empty() && bad != nullptr)
      stores->warnings.push_back(fmt::format("{}: {} mask{} no image in {}, such as {}",
                                             mask_root,
                                             unused.size(),
                                             unused.size() == 1 ? " has" : "s have",
                                             root,
                                             *std::ranges::min_element(unused)));
    if (std::string warning = others.describe_images(root); !warning.empty())
      stores->warnings.push_back(std::move(warning));
    return store;
  }

  const DataConfig& data_;
  const MaskedImagesConfig& config_;
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const MaskedImagesConfig& masked) {
  return std::make_unique<MaskedImages>(data, masked);
}

}  // namespace lockstep::data
