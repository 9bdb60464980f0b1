#pragma once
// The renames by which checkpoints appear and disappear. Used by CheckpointWriter and prune(). All
// throw IoError.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::checkpoint {

// "step-00000042.tmp", or with a generation above 0 "step-00000042.g7.tmp". Two writers of the same
// step have different generations, and so write different files.
std::string temporary_name(int64_t step, int64_t generation);

// Gives the finished folder `temporary` its final name in the same parent folder, durably. If a
// checkpoint already has that name, the two are exchanged atomically, and the old one is removed.
// If the file system cannot exchange folders (or `exchange` is false), the old one is first renamed
// to a name that list_checkpoints() accepts, so that one of the two is found at any moment.
void publish_checkpoint(const std::filesystem::path& temporary,
                        const std::filesystem::path& final_path,
                        bool exchange = true);

// Renames the folder to *.tmp-delete and removes it with its contents. If that fails, the folder
// stays, with a warning.
void remove_checkpoint(const std::filesystem::path& path);

// Removes what interrupted writers and removals left in `root`. Logs a warning for each folder that
// cannot be removed.
void remove_leftovers(const std::filesystem::path& root);

}  // namespace lockstep::checkpoint
