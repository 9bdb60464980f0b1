#pragma once
// lockstep data pack, inspect, bench and tokenize: what they share.

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

// The images at `path`, as training images, where a format knows it as its own: a folder, tar
// files, packed records; none: it is something else. Throws DataError.
std::optional<ImageStores> open_images_at(const std::string& path, bool skip_bad);

// `threads`, or where that is 0 the CPUs of this process.
int choose_data_threads(int threads);

// Calls body(i) for each i in [begin, end) on so many threads, in no order. What a body throws
// first ends the others and is rethrown.
void for_each_in_threads(int64_t begin,
                         int64_t end,
                         int threads,
                         const std::function<void(int64_t)>& body);

}  // namespace lockstep
