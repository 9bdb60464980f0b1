#include <filesystem>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/table_names.h"
#include "runtime/data/class_warnings.h"
#include "runtime/data/held_out.h"
#include "runtime/data/images/folder_layout.h"
#include "runtime/data/images/folder_store.h"
#include "runtime/data/images/image_format.h"
#include "runtime/data/images/image_name.h"
#include "runtime/data/images/other_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::string path_of(const DataConfig& config, const std::string& path, const char* field) {
  const bool is_dir = path == "." && !config.dir.empty();
  const std::string folder = is_dir ? config.dir : (fs::path(config.dir) / path).string();
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  std::string hint = look_alike_hint(folder) + conversion_by_name(path, TableForm::kImages);
  if (hint.empty())
    hint = field == std::string("train") ? layout_hint(config.dir)
                                         : eval_remedy_for(std::string("image_folder.") + field);
  throw DataError("data.image_folder.{}: '{}' is not a folder{}", field, folder, hint);
}

std::vector<std::string> classes_of(const std::string& root) {
  std::vector<std::string> names;
  OtherFiles others;
  for (const auto& entry : sorted_entries(root, &others)) {
    if (is_folder(entry))
      names.push_back(entry.path().filename().string());
    else
      others.add(entry.path());
  }
  if (!names.empty()) return names;
  const std::string rest = others.describe();
  throw DataError("{}: has no folders{}; data.image_folder needs one for each class",
                  root,
                  rest.empty() ? "" : fmt::format(" ({})", rest));
}

// The index of each class, by the normal form of its name. Throws DataError if two names differ
// only in form.
std::unordered_map<std::string, int32_t> index_of(const std::vector<std::string>& classes) {
  std::unordered_map<std::string, int32_t> index;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto [found, is_new] = index.emplace(normal_name(classes[i]), static_cast<int32_t>(i));
    if (!is_new)
      throw DataError(
          "data.image_folder.train: the folders {} and {} have names that look the same; move the "
          "images of one into the other",
          spell_out(classes[static_cast<size_t>(found->second)]),
          spell_out(classes[i]));
  }
  return index;
}

// One set of images, and what people hardly mean in its folders.
struct OpenedFolder {
  std::shared_ptr<const ImageStore> store;
  OtherFiles others;
  std::vector<std::string> warnings;
};

// The end of opening: checks that there is an image, and reports those that are not read. `remedy`:
// for the message if there is none, or empty.
OpenedFolder finish(std::shared_ptr<FolderStore> store,
                    const std::string& root,
                    const char* where,
                    const std::string& remedy,
                    OpenedFolder opened) {
  if (store->count() == 0)
    throw DataError("{}{}", opened.others.describe_no_image(root, where), remedy);
  if (std::string warning = opened.others.describe_images(root); !warning.empty())
    opened.warnings.push_back(std::move(warning));
  store->finish();
  opened.store = std::move(store);
  return opened;
}

OpenedFolder open_folder(const std::string& root,
                         const std::vector<std::string>& classes,
                         const std::string& remedy) {
  OpenedFolder opened;
  auto store = std::make_shared<FolderStore>(root);
  const auto class_of = index_of(classes);
  for (const auto& entry : sorted_entries(root, &opened.others)) {
    if (!is_folder(entry)) {
      opened.others.add(entry.path());
      continue;
    }
    const std::string name = entry.path().filename().string();
    const auto found = class_of.find(normal_name(name));
    if (found == class_of.end())
      throw DataError(
          "{}: data.image_folder.train has no folder of that name; its folders are the classes{}",
          entry.path().string(),
          look_alike_note(name, classes));
    add_images(entry.path(), name, found->second, store.get(), &opened.others);
  }
  return finish(std::move(store), root, "its folders", remedy, std::move(opened));
}

// The images in a folder and its subfolders, in the same order. Only those in the folder of a class
// have one; the others have -1.
OpenedFolder open_any(const std::string& root, const std::vector<std::string>& classes) {
  OpenedFolder opened;
  auto store = std::make_shared<FolderStore>(root);
  const auto class_of = index_of(classes);
  for (const auto& entry : sorted_entries(root, &opened.others)) {
    const std::string name = entry.path().filename().string();
    const auto found = class_of.find(normal_name(name));
    const int32_t label = found == class_of.end() ? -1 : found->second;
    if (is_folder(entry))
      add_images(entry.path(), name, label, store.get(), &opened.others, {fs::canonical(root)});
    else if (is_image_name(name))
      store->add(name, -1);
    else
      opened.others.add(entry.path());
  }
  return finish(std::move(store), root, "it", "", std::move(opened));
}

class ImageFolder final : public ImageFormat<ImageFolderConfig> {
 public:
  using ImageFormat::ImageFormat;

  std::optional<DataSource> source_at(const std::string& path) const override {
    std::error_code error;
    if (!fs::is_directory(path, error)) return std::nullopt;
    ImageFolderConfig folder;
    folder.train = path;
    return folder;
  }

  // The folders of the training images name the classes. If they do not exist, the model's number
  // of outputs is enough.
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    std::error_code error;
    const fs::path train = fs::path(data_.dir) / config_.train;
    ImageStores stores;
    stores.classes = model.outputs;
    if (model.outputs == 0 || fs::is_directory(train, error)) stores = with_classes();
    OtherFiles others;
    if (!config_.eval.empty())
      stores.eval = take(
          open_any(path_of(data_, config_.eval, "eval"), stores.class_names), &others, &stores);
    set_kind(others, &stores);
    return stores;
  }

 protected:
  ImageStores open_images(bool need_train) const override {
    ImageStores stores = with_classes();
    OtherFiles others;
    const auto open = [&](const std::string& path, const char* field) {
      const std::string remedy = eval_remedy_for(std::string("image_folder.") + field);
      return take(
          open_folder(path_of(data_, path, field), stores.class_names, remedy), &others, &stores);
    };
    if (need_train) stores.train = open(config_.train, "train");
    if (!config_.eval.empty()) stores.eval = open(config_.eval, "eval");
    set_kind(others, &stores);
    return stores;
  }

 private:
  ImageStores with_classes() const {
    ImageStores stores;
    const std::string train = path_of(data_, config_.train, "train");
    stores.class_names = classes_of(train);
    // Images to predict may lie beside the classes.
    if (config_.train == ".") std::erase(stores.class_names, config_.eval);
    stores.classes = static_cast<int64_t>(stores.class_names.size());
    return stores;
  }

  static std::shared_ptr<const ImageStore> take(OpenedFolder opened,
                                                OtherFiles* others,
                                                ImageStores* stores) {
    others->add(opened.others);
    std::move(opened.warnings.begin(), opened.warnings.end(), std::back_inserter(stores->warnings));
    return opened.store;
  }

  static void set_kind(const OtherFiles& others, ImageStores* stores) {
    stores->kind = "folders of images";
    if (const std::string rest = others.describe(); !rest.empty())
      stores->kind += fmt::format(" ({})", rest);
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const ImageFolderConfig& folder) {
  return std::make_unique<ImageFolder>(data, folder);
}

}  // namespace lockstep::data
