#include "runtime/data/images/other_files.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

// Endings of images that are not read, or that are read only under another name.
const std::vector<std::string> kOtherImages =
    words_of(".webp .bmp .gif .tif .tiff .avif .heic .heif .jxl .jp2 .ppm .pgm .jfif .jpe");

// "the first, a.webp, is a WebP image, not ...".
std::string describe_first(const std::string& path) {
  const std::string begin = is_file(path) ? begin_of_file(path) : "";  // a pipe would block
  const FileKind kind = file_kind(begin);
  if (kind.id == "jpeg" || kind.id == "png")
    return fmt::format("the first, {}, is {}; give it the ending .{}", path, kind.name, kind.id);
  return fmt::format(
      "the first, {}, {}", path, is_not(begin, "a JPEG or PNG image", TableForm::kImages));
}

}  // namespace

void OtherFiles::add(const std::filesystem::path& path) {
  if (++files_ == 1) first_file_ = path.string();
  if (std::ranges::none_of(
          kOtherImages, [&](std::string_view ending) { return has_suffix(path.native(), ending); }))
    return;
  if (++images_ == 1) first_image_ = path.string();
}

void OtherFiles::add(const OtherFiles& more) {
  if (files_ == 0) first_file_ = more.first_file_;
  if (images_ == 0) first_image_ = more.first_image_;
  hidden_ += more.hidden_;
  files_ += more.files_;
  images_ += more.images_;
}

std::string OtherFiles::describe() const {
  std::string text;
  if (hidden_ == 1) text = "1 hidden file or folder passed over";
  if (hidden_ > 1) text = fmt::format("{} hidden files and folders passed over", hidden_);
  if (files_ == 0) return text;
  if (!text.empty()) text += ", ";
  return text + fmt::format("{} other file{} ignored", files_, plural(files_));
}

std::string OtherFiles::describe_no_image(const std::string& folder,
                                          const std::string& where) const {
  std::string text = fmt::format("{}: no .jpg, .jpeg or .png file in {}", folder, where);
  if (const std::string rest = describe(); !rest.empty()) text += fmt::format(" ({})", rest);
  const std::string& first = images_ > 0 ? first_image_ : first_file_;
  return first.empty() ? text : text + "; " + describe_first(first);
}

std::string OtherFiles::describe_images(const std::string& folder) const {
  if (images_ == 0) return "";
  return fmt::format("{}: {} image{} left out because of format or name; {}",
                     folder,
                     images_,
                     images_ == 1 ? " is" : "s are",
                     describe_first(first_image_));
}

}  // namespace lockstep::data
