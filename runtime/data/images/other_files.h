#pragma once
// Files in folders of images that are no images, or images that are not read.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::data {

class OtherFiles {
 public:
  // Counts a hidden file or folder; see is_hidden().
  void add_hidden() { ++hidden_; }
  // Counts a file whose name does not end like that of an image that is read.
  void add(const std::filesystem::path& path);
  void add(const OtherFiles& more);

  // "2 hidden files and folders passed over, 1 other file ignored"; empty if there are none.
  std::string describe() const;
  // A message about a folder without an image. `where`: "its folders", for example.
  std::string describe_no_image(const std::string& folder, const std::string& where) const;
  // A warning about images that are not read because of their format or name; empty if there are
  // none. Names the first one by its contents.
  std::string describe_images(const std::string& folder) const;

 private:
  int64_t hidden_ = 0, files_ = 0;
  int64_t images_ = 0;  // those of the files whose names end like an image of another format
  std::string first_file_, first_image_;  // paths
};

}  // namespace lockstep::data
