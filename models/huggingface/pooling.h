#pragma once
// How a folder for sentence-transformers makes one vector of a text's tokens.

#include <cstdint>
#include <filesystem>

namespace lockstep::huggingface {

inline constexpr const char* kPoolingFile = "1_Pooling/config.json";

enum class FolderPooling { kNotSaid, kFirstToken, kMean, kOther };

// What 1_Pooling/config.json says; kNotSaid where the folder has no such file, kOther of what is not
// here, such as the largest value or several side by side. Throws ConfigError for a file that is no
// JSON object.
FolderPooling read_pooling(const std::filesystem::path& folder);

// "the mean of all tokens"
const char* describe(FolderPooling pooling);

// Writes the file, for the mean of vectors of `width` features. Throws IoError.
void write_mean_pooling(const std::filesystem::path& folder, int64_t width);

}  // namespace lockstep::huggingface
