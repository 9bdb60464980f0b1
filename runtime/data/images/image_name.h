#pragma once
// Which file names count as images.

#include <string_view>

namespace lockstep::data {

// Whether the extension is .jpg, .jpeg or .png, in upper or lower case.
bool is_image_name(std::string_view name);

}  // namespace lockstep::data
