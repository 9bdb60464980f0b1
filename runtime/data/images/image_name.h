#pragma once
// Which files count as images.

#include <string_view>

namespace lockstep {

// Whether a file's name says that it is an image: .jpg, .jpeg or .png, in any case.
bool is_image_name(std::string_view name);

}  // namespace lockstep
