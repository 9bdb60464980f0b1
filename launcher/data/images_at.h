#pragma once
// Images that a path of the command line names.

#include <optional>
#include <string>

#include "runtime/data/images/image_stores.h"

namespace lockstep::launcher {

// Opens the images at `path` as training images, if a format recognizes it: a folder, tar files,
// packed records. Returns nullopt otherwise. Throws DataError.
std::optional<data::ImageStores> open_images_at(const std::string& path, bool skip_bad);

}  // namespace lockstep::launcher
