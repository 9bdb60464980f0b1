#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/images/image_format.h"
#include "runtime/data/images/image_name.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

// Reads a whole file into `buffer`, which grows but never shrinks, so that it can be reused.
std::span<const std::byte> read_into(const std::string& path, std::vector<std::byte>& buffer) {
  uint64_t size = 0;
  const Descriptor file(open_regular(path, size));
  if (size == 0) throw DataError("the file is empty");
  if (size > kMaxFileBytes)
    throw DataError("has {} bytes; allowed: up to {} bytes", size, kMaxFileBytes);
  if (buffer.size() < size) buffer.resize(size);
  size_t read = 0;
  while (read < size) {
    const ssize_t got =
        uninterrupted([&] { return ::read(file.fd, buffer.data() + read, size - read); });
    if (got < 0) throw IoError("read", path, errno);
    if (got == 0) break;
    read += static_cast<size_t>(got);
  }
  return std::span(buffer).first(read);
}

// The paths of many files, stored as one string: millions of strings would take three times the
// memory.
class FolderStore final : public ImageStore {
 public:
  explicit FolderStore(std::string root) : root_(std::move(root)) {}

  void add(const std::string& path, int32_t label) {
    begins_.push_back(paths_.size());
    paths_ += path;
    labels_.push_back(label);
  }
  void finish() {
    begins_.push_back(paths_.size());
    paths_.shrink_to_fit();
  }

  int64_t count() const override { return static_cast<int64_t>(labels_.size()); }
  int32_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }
  std::string name(int64_t index) const override { return root_ + "/" + file(index); }
  std::vector<std::string> files() const override {
    std::vector<std::string> files;
    for (int64_t i = 0; i < count(); ++i) files.push_back(file(i));
    return files;
  }
  StoredImage load(int64_t index, std::vector<std::byte>& buffer) const override {
    StoredImage image;
    image.bytes = read_into(name(index), buffer);
    return image;
  }
  bool encoded() const override { return true; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(paths_.capacity() + begins_.capacity() * sizeof(size_t) +
                                labels_.capacity() * sizeof(int32_t));
  }

 private:
  std::string file(int64_t index) const {
    const size_t begin = begins_[static_cast<size_t>(index)];
    const size_t end = begins_[static_cast<size_t>(index) + 1];
    return paths_.substr(begin, end - begin);
  }

  std::string root_;
  std::string paths_;  // relative to root_, concatenated
  std::vector<size_t> begins_;
  std::vector<int32_t> labels_;
};

std::string path_of(const DataConfig& config, const std::string& path, const char* field) {
  const fs::path folder = fs::path(config.dir) / path;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw DataError("data.image_folder.{}: '{}' is not a folder", field, folder.string());
  return folder.string();
}

// The entries of a folder, sorted by the bytes of their names, which is the same on every machine.
std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator next(folder, fs::directory_options::none, error), end;
  for (; !error && next != end; next.increment(error)) entries.push_back(*next);
  if (error) throw DataError("cannot list folder '{}': {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.path().filename().native() < b.path().filename().native();
  });
  return entries;
}

// Whether the entry is a folder or a symbolic link to one. A broken link is not.
bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool folder = entry.is_directory(error);
  if (error == std::errc::too_many_symbolic_link_levels)
    throw DataError("{}: is a symbolic link to itself", entry.path().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError("cannot access '{}': {}", entry.path().string(), error.message());
  return folder;
}

std::vector<std::string> classes_of(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : sorted_entries(root))
    if (is_folder(entry)) names.push_back(entry.path().filename().string());
  return names;
}

// Adds the images in a folder and its subfolders to the store, under the path `below`. `ancestors`:
// the folders that contain this one. A symbolic link to one of them would never end, so it is an
// error.
void add_images(const fs::path& folder,
                const std::string& below,
                int32_t label,
                FolderStore* store,
                int64_t* other_files,
                std::vector<fs::path> ancestors = {}) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (std::find(ancestors.begin(), ancestors.end(), real) != ancestors.end())
    throw DataError("{}: is a symbolic link to a folder that contains it", folder.string());
  ancestors.push_back(real);
  for (const auto& entry : sorted_entries(folder)) {
    const std::string path = (fs::path(below) / entry.path().filename()).string();
    if (is_folder(entry))
      add_images(entry.path(), path, label, store, other_files, ancestors);
    else if (is_image_name(path))
      store->add(path, label);
    else
      ++*other_files;
  }
}

std::shared_ptr<const ImageStore> open_folder(const std::string& root,
                                              const std::vector<std::string>& classes,
                                              int64_t* other_files) {
  auto store = std::make_shared<FolderStore>(root);
  for (const auto& entry : sorted_entries(root)) {
    if (!is_folder(entry)) {
      ++*other_files;
      continue;
    }
    const std::string name = entry.path().filename().string();
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name)
      throw DataError(
          "{}: data.image_folder.train has no folder of that name; its folders define the classes",
          entry.path().string());
    add_images(entry.path(),
               name,
               static_cast<int32_t>(found - classes.begin()),
               store.get(),
               other_files);
  }
  if (store->count() == 0) throw DataError("{}: no .jpg, .jpeg or .png file in its folders", root);
  store->finish();
  return store;
}

// The images in a folder and its subfolders, in the same order, all with class 0.
std::shared_ptr<const ImageStore> open_unlabelled(const std::string& root, int64_t* other_files) {
  auto store = std::make_shared<FolderStore>(root);
  add_images(root, "", 0, store.get(), other_files);
  if (store->count() == 0) throw DataError("{}: no .jpg, .jpeg or .png file in it", root);
  store->finish();
  return store;
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
  OpenedSource open_inputs(const ModelTraits& model, uint64_t /*seed*/) const override {
    std::error_code error;
    const fs::path train = fs::path(data_.dir) / config_.train;
    ImageStores stores;
    stores.classes = model.outputs;
    if (model.outputs == 0 || fs::is_directory(train, error)) stores = with_classes();
    int64_t other_files = 0;
    if (!config_.eval.empty())
      stores.eval = open_unlabelled(path_of(data_, config_.eval, "eval"), &other_files);
    set_kind(other_files, &stores);
    return stores;
  }

 protected:
  ImageStores open_images(bool need_train) const override {
    ImageStores stores = with_classes();
    int64_t other_files = 0;
    if (need_train)
      stores.train =
          open_folder(path_of(data_, config_.train, "train"), stores.class_names, &other_files);
    if (!config_.eval.empty())
      stores.eval =
          open_folder(path_of(data_, config_.eval, "eval"), stores.class_names, &other_files);
    set_kind(other_files, &stores);
    return stores;
  }

 private:
  ImageStores with_classes() const {
    ImageStores stores;
    const std::string train = path_of(data_, config_.train, "train");
    stores.class_names = classes_of(train);
    if (stores.class_names.empty())
      throw DataError("{}: has no folders; data.image_folder needs one for each class", train);
    stores.classes = static_cast<int64_t>(stores.class_names.size());
    return stores;
  }

  static void set_kind(int64_t other_files, ImageStores* stores) {
    stores->kind = "folders of images";
    if (other_files > 0) stores->kind += fmt::format(" ({} other files ignored)", other_files);
  }
};

}  // namespace

bool is_image_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string extension(name.substr(dot + 1));
  std::transform(extension.begin(), extension.end(), extension.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const ImageFolderConfig& folder) {
  return std::make_unique<ImageFolder>(data, folder);
}

}  // namespace lockstep
