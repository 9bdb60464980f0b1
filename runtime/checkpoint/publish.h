#pragma once
// The renames by which checkpoints appear and disappear; used by CheckpointWriter and prune. Throws
// IoError.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

// "step-00000042.tmp", of a generation "step-00000042.g7.tmp": two that write the same step do not
// write the same files.
std::string temporary_name(int64_t step, int64_t generation);

// Gives the finished folder `temporary` its final name beside it, durably. A checkpoint that has
// the name already is exchanged in one step and then removed; where the file system cannot exchange
// (or `exchange` is false) it is moved aside first, under a name that list_checkpoints accepts, so
// that at every moment one of the two is found.
void publish_checkpoint(const std::filesystem::path& temporary,
                        const std::filesystem::path& final_path,
                        bool exchange = true);

// Renames the folder to *.tmp-delete and removes it with all it holds. Where that fails it stays,
// with a warning.
void remove_checkpoint(const std::filesystem::path& path);

// Removes what interrupted writers and removals left in `root`; warns of what stays.
void remove_leftovers(const std::filesystem::path& root);

}  // namespace lockstep
