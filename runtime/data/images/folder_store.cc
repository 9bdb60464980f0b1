#include "runtime/data/images/folder_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/data/images/image_name.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

}  // namespace

void FolderStore::add(const std::string& path, int32_t label) {
  begins_.push_back(paths_.size());
  paths_ += path;
  labels_.push_back(label);
}

void FolderStore::finish() {
  begins_.push_back(paths_.size());
  paths_.shrink_to_fit();
}

std::vector<std::string> FolderStore::files() const {
  std::vector<std::string> files;
  for (int64_t i = 0; i < count(); ++i) files.push_back(file(i));
  return files;
}

StoredImage FolderStore::load(int64_t index, std::vector<std::byte>& buffer) const {
  StoredImage image;
  image.bytes = read_into(name(index), buffer);
  return image;
}

int64_t FolderStore::resident_bytes() const {
  return static_cast<int64_t>(paths_.capacity() + begins_.capacity() * sizeof(size_t) +
                              labels_.capacity() * sizeof(int32_t));
}

std::string FolderStore::file(int64_t index) const {
  const size_t begin = begins_[static_cast<size_t>(index)];
  const size_t end = begins_[static_cast<size_t>(index) + 1];
  return paths_.substr(begin, end - begin);
}

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

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder, OtherFiles* others) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator next(folder, fs::directory_options::none, error), end;
  for (; !error && next != end; next.increment(error)) {
    if (is_hidden(next->path().filename().native()))
      others->add_hidden();
    else
      entries.push_back(*next);
  }
  if (error) throw DataError("cannot list folder '{}': {}", folder.string(), error.message());
  std::ranges::sort(entries, [](const auto& a, const auto& b) {
    return a.path().filename().native() < b.path().filename().native();
  });
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool folder = entry.is_directory(error);
  if (error == std::errc::too_many_symbolic_link_levels)
    throw DataError("{}: is a symbolic link to itself", entry.path().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError("cannot access '{}': {}", entry.path().string(), error.message());
  return folder;
}

void add_images(const fs::path& folder,
                const std::string& below,
                int32_t label,
                FolderStore* store,
                OtherFiles* others,
                std::vector<fs::path> ancestors) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (std::ranges::find(ancestors, real) != ancestors.end())
    throw DataError("{}: is a symbolic link to a folder that contains it", folder.string());
  ancestors.push_back(real);
  for (const auto& entry : sorted_entries(folder, others)) {
    const std::string path = (fs::path(below) / entry.path().filename()).string();
    if (is_folder(entry))
      add_images(entry.path(), path, label, store, others, ancestors);
    else if (is_image_name(path))
      store->add(path, label);
    else
      others->add(entry.path());
  }
}

bool is_image_name(std::string_view name) {
  return has_suffix(name, ".jpg") || has_suffix(name, ".jpeg") || has_suffix(name, ".png");
}

}  // namespace lockstep::data
