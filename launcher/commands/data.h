#pragma once
// lockstep data pack, inspect and bench: what they share.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep {

CommandSpec data_pack_command();
CommandSpec data_inspect_command();
CommandSpec data_bench_command();

// The pictures at `path`: a folder with one folder per class, tar files (braces as in
// data.tar_shards) or a record file. Throws DataError.
ImageStores open_image_path(const std::string& path, bool skip_bad);

// Whether `path` is something that open_image_path() opens rather than a config file.
bool is_image_path(const std::string& path);

// `threads`, or where that is 0 the CPUs of this process.
int choose_data_threads(int threads);

// Calls body(i) for each i in [begin, end) on so many threads, in no order. What a body throws
// first ends the others and is rethrown.
void for_each_picture(int64_t begin,
                      int64_t end,
                      int threads,
                      const std::function<void(int64_t)>& body);

}  // namespace lockstep
