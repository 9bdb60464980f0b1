#pragma once
// The report's pictures.

#include <array>
#include <filesystem>
#include <vector>

#include "launcher/plots/picture.h"
#include "launcher/scale/report_text.h"

namespace lockstep::scale {

// The names of the pictures, without ending: throughput against ideal, efficiency, and lost time by
// part.
inline constexpr std::array kPictures{"throughput", "efficiency", "lost_time"};

// In the order of kPictures.
std::vector<plots::Picture> make_pictures(const Report& report);

// Writes each as NAME.svg and NAME.csv. Throws IoError.
void draw(const std::vector<plots::Picture>& pictures, const std::filesystem::path& folder);

}  // namespace lockstep::scale
