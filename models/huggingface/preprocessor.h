#pragma once
// preprocessor_config.json: how images are normalised for the folder's model.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/config/image_normalisation.h"
#include "runtime/config/preprocessing.h"

namespace lockstep::huggingface {

inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";

// The file's mean and std for bytes / 255, converted if its rescale_factor is another one. Empty if
// there is no such file; one number if all channels have the same. Throws ConfigError for invalid
// values.
config::ImageNormalisation read_normalisation(const std::filesystem::path& folder);

// A sentence for the log that compares the file with the run's normalisation; empty if there is no
// such file.
std::string note_of_normalisation(const std::filesystem::path& folder,
                                  const config::ImageNormalisation& run);

// Writes the file into `folder`, for square images with sides of `size` pixels. If the run's images
// have that size already, other fields are copied from the file in `like`, if it has one; otherwise
// the file describes how the run resizes and crops them. Throws ConfigError, IoError.
void write_preprocessor(const std::filesystem::path& folder,
                        const std::filesystem::path& like,
                        int64_t size,
                        const config::ImageNormalisation& run,
                        const std::optional<config::ImageInputs>& images);

}  // namespace lockstep::huggingface
