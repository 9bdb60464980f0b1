#pragma once
// The image files of a folder and its subfolders.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/images/image_store.h"
#include "runtime/data/images/other_files.h"

namespace lockstep::data {

// The paths of many files, stored as one string: millions of strings would take three times the
// memory.
class FolderStore : public ImageStore {
 public:
  explicit FolderStore(std::string root) : root_(std::move(root)) {}

  void add(const std::string& path, int32_t label);  // `path`: relative to the root
  void finish();                                     // after the last add()

  int64_t count() const override { return static_cast<int64_t>(labels_.size()); }
  int32_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }
  std::string name(int64_t index) const override { return root_ + "/" + file(index); }
  std::vector<std::string> files() const override;
  std::vector<std::string> split_names() const override { return files(); }
  StoredImage load(int64_t index, std::vector<std::byte>& buffer) const override;
  bool encoded() const override { return true; }
  int64_t resident_bytes() const override;

 protected:
  std::string file(int64_t index) const;  // relative to the root

 private:
  std::string root_;
  std::string paths_;  // relative to root_, concatenated
  std::vector<size_t> begins_;
  std::vector<int32_t> labels_;
};

// Reads a whole file into `buffer`, which grows but never shrinks, so that it can be reused. Throws
// DataError if it is empty or has more than 1 GB, and IoError.
std::span<const std::byte> read_into(const std::string& path, std::vector<std::byte>& buffer);

// The visible entries of a folder, sorted by the bytes of their names, which is the same on every
// machine. Counts the hidden ones.
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder,
                                                             OtherFiles* others);

// Whether the entry is a folder or a symbolic link to one. A broken link is not.
bool is_folder(const std::filesystem::directory_entry& entry);

// Adds the images in a folder and its subfolders to the store, under the path `below`. `ancestors`:
// the folders that contain this one. A symbolic link to one of them would never end, so it is an
// error.
void add_images(const std::filesystem::path& folder,
                const std::string& below,
                int32_t label,
                FolderStore* store,
                OtherFiles* others,
                std::vector<std::filesystem::path> ancestors = {});

}  // namespace lockstep::data
