#pragma once
// How a sentence-transformers folder pools the tokens of a text into one vector.

#include <cstdint>
#include <filesystem>

namespace lockstep::huggingface {

inline constexpr const char* kPoolingFile = "1_Pooling/config.json";

enum class FolderPooling { kUnspecified, kFirstToken, kMean, kOther };

// Reads 1_Pooling/config.json. Returns kUnspecified if the folder has no such file, and kOther for
// unsupported poolings, such as the maximum or several at once. Throws ConfigError if the file is
// not a JSON object.
FolderPooling read_pooling(const std::filesystem::path& folder);

// "the mean of all tokens"
const char* describe(FolderPooling pooling);

// Writes 1_Pooling/config.json for the mean of vectors of `width` features. Throws IoError.
void write_mean_pooling(const std::filesystem::path& folder, int64_t width);

}  // namespace lockstep::huggingface
