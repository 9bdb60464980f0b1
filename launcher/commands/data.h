#pragma once
// What lockstep data pack, inspect, bench and tokenize share.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep {

CommandSpec data_pack_command();
CommandSpec data_inspect_command();
CommandSpec data_bench_command();
CommandSpec data_tokenize_command();

// Opens the images at `path` as training images, if a format recognizes it: a folder, tar files,
// packed records. Returns nullopt otherwise. Throws DataError.
std::optional<ImageStores> open_images_at(const std::string& path, bool skip_bad);

// `threads`, or this process's number of CPUs if it is 0.
int choose_data_threads(int threads);

// Calls body(i) for each i in [begin, end) on `threads` threads, in any order. The first exception
// ends the other threads and is rethrown.
void for_each_in_threads(int64_t begin,
                         int64_t end,
                         int threads,
                         const std::function<void(int64_t)>& body);

}  // namespace lockstep
