#include "runtime/data/images/folder_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/images/image_name.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr float kDefaultShare = 0.1f;  // of the training images, for evaluation
constexpr size_t kShown = 5;           // classes in the log

const std::vector<std::string> kTrainNames = words_of("train training");
const std::vector<std::string> kEvalNames = words_of("val valid validation eval dev");
const std::vector<std::string> kTestNames = words_of("test testing");

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::count(names, folded_name(name)) > 0;
}
bool is_set_name(const std::string& name) {
  return is_one_of(kTrainNames, name) || is_one_of(kEvalNames, name) || is_one_of(kTestNames, name);
}

// The visible entries of a folder; empty if it does not exist.
struct Listing {
  std::vector<std::string> folders;  // sorted
  int64_t images = 0;
};

Listing list(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  fs::directory_iterator next(folder, error), end;
  for (; !error && next != end; next.increment(error)) {
    const std::string name = next->path().filename().string();
    std::error_code broken;  // a link to nothing
    if (is_hidden(name)) continue;
    if (next->is_directory(broken))
      listing.folders.push_back(name);
    else if (is_image_name(name))
      ++listing.images;
  }
  std::ranges::sort(listing.folders);
  return listing;
}

bool has_classes(const fs::path& folder) { return !list(folder).folders.empty(); }

// Whether folders in `dir` are classes: they have images, and are not called as sets are.
bool has_classes_at_top(const fs::path& dir, const Listing& top) {
  return std::ranges::any_of(top.folders, [&](const std::string& name) {
    return !is_set_name(name) && list(dir / name).images > 0;
  });
}

// The folder of training images in `dir`, if there is one.
std::optional<std::string> find_training(const fs::path& dir,
                                         const Listing& top,
                                         const std::string& named) {
  if (has_classes(dir / named)) return named;
  for (const std::string& name : top.folders)
    if (is_one_of(kTrainNames, name) && has_classes(dir / name)) return name;
  return std::nullopt;
}

// The folder of evaluation images beside the training folder `train`, if there is one: its folders
// are classes of the training images.
std::optional<std::string> find_evaluation(const fs::path& dir,
                                           const Listing& top,
                                           const std::string& train) {
  const std::vector<std::string> classes = list(dir / train).folders;
  for (const std::vector<std::string>* usual : {&kEvalNames, &kTestNames}) {
    std::vector<std::string> found;
    for (const std::string& name : top.folders) {
      if (!is_one_of(*usual, name)) continue;
      const std::vector<std::string> folders = list(dir / name).folders;
      if (!folders.empty() && std::ranges::includes(classes, folders)) found.push_back(name);
    }
    if (found.size() > 1)
      throw ConfigError(
          "data.image_folder.eval: several folders in '{}' could be meant; name one: "
          "--set data.image_folder.eval={}",
          dir.string(),
          fmt::format("{}", fmt::join(found, " or ")));
    if (!found.empty()) return found.front();
  }
  return std::nullopt;
}

std::string describe_training(const fs::path& dir, const Listing& top, const std::string& train) {
  if (train != ".") return fmt::format("'{}' trains", (dir / train).string());
  const size_t classes = top.folders.size();
  std::string text = fmt::format(
      "the {} folder{} of '{}' {} ({})",
      classes,
      plural(classes),
      dir.string(),
      classes == 1 ? "is the class" : "are the classes",
      named_first(classes, kShown, [&](size_t i) { return escape_controls(top.folders[i]); }));
  if (top.images > 0)
    text += fmt::format("; {} image{} outside of them {} left out",
                        top.images,
                        plural(top.images),
                        top.images == 1 ? "is" : "are");
  return text;
}

}  // namespace

FoundFolders find_folders(DataConfig data) {
  FoundFolders found{std::move(data), ""};
  auto* const folders = std::get_if<ImageFolderConfig>(&found.data.source);
  if (folders == nullptr || found.data.dir.empty() || !is_one_of(kTrainNames, folders->train))
    return found;
  const ImageFolderConfig named = *folders;
  const fs::path dir = found.data.dir;
  std::error_code error;
  const bool lacks_eval = !named.eval.empty() && !fs::is_directory(dir / named.eval, error);
  const Listing top = list(dir);
  if (const auto train = find_training(dir, top, named.train))
    folders->train = *train;
  else if ((named.eval.empty() || lacks_eval) && has_classes_at_top(dir, top))
    folders->train = ".";
  else
    return found;
  std::string evaluation;
  if (lacks_eval && is_set_name(named.eval)) {
    const bool looks = folders->train != "." && found.data.eval_fraction == 0;
    const auto eval = looks ? find_evaluation(dir, top, folders->train) : std::nullopt;
    folders->eval = eval.value_or("");
    if (!eval && found.data.eval_fraction == 0) found.data.eval_fraction = kDefaultShare;
    evaluation = eval ? fmt::format("; '{}' evaluates", (dir / *eval).string())
                      : fmt::format(
                            "; there is no '{}': data.eval_fraction {:g} of the images is "
                            "held out for evaluation",
                            named.eval,
                            found.data.eval_fraction);
  }
  if (*folders != named)
    found.text = "data.image_folder: " + describe_training(dir, top, folders->train) + evaluation;
  return found;
}

FoundFolders find_inputs(DataConfig data) {
  FoundFolders found{std::move(data), ""};
  auto* const folders = std::get_if<ImageFolderConfig>(&found.data.source);
  if (folders == nullptr || found.data.dir.empty()) return found;
  const fs::path dir = found.data.dir;
  const Listing top = list(dir);
  std::error_code error;
  const bool has_training =
      folders->train == "." ? !top.folders.empty() : fs::is_directory(dir / folders->train, error);
  if (top.images == 0 || has_training || fs::is_directory(dir / kTrainNames.front(), error))
    return found;
  folders->train = kTrainNames.front();  // not there, so the checkpoint names the classes
  folders->eval = ".";
  found.data.eval_fraction = 0;
  found.text = fmt::format("data.image_folder: the images in '{}' have no classes", dir.string());
  return found;
}

std::string layout_hint(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) return "";
  const Listing top = list(dir);
  if (top.folders.empty() && top.images > 0)
    return fmt::format(
        "; '{}' has {} image{} but no folders: move the images of each class into a folder, as in "
        "{}/CLASS/*.jpg",
        dir,
        top.images,
        plural(top.images),
        dir);
  for (const std::string& name : top.folders)
    if (top.folders.size() == 1 && has_classes(fs::path(dir) / name))
      return fmt::format("; '{0}' has folders: if they are the classes, give --data {0}",
                         (fs::path(dir) / name).string());
  return fmt::format(
      "; expected: {0}/CLASS/*.jpg, or {0}/train/CLASS/*.jpg and {0}/val/CLASS/*.jpg", dir);
}

}  // namespace lockstep::data
