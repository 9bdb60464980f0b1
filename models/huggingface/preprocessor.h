#pragma once
// How a folder's images are brought to what its model sees: preprocessor_config.json.

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/config/image_normalisation.h"

namespace lockstep::huggingface {

inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";

// What the file says of bytes / 255, whatever its rescale_factor is: empty where there is no such
// file, one number where all channels have the same. Throws ConfigError for values that are none.
ImageNormalisation read_normalisation(const std::filesystem::path& folder);

// What a person should know of the file where the run normalises so; empty: there is no such file.
std::string note_of_normalisation(const std::filesystem::path& folder,
                                  const ImageNormalisation& run);

// Writes the file into `folder`, for square images of `size` pixels. Other fields are those of the
// file in `like`, if that has one. Throws ConfigError, IoError.
void write_preprocessor(const std::filesystem::path& folder,
                        const std::filesystem::path& like,
                        int64_t size,
                        const ImageNormalisation& run);

}  // namespace lockstep::huggingface
