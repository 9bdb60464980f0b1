#pragma once
// The samples of a tar file in WebDataset's layout.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep::data {

// An image within a tar file, and its class.
struct TarSample {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  int32_t label = 0;
};

// Calls `on_sample` with each sample of the tar file `file`, in the order of the file. A sample is
// an image (.jpg, .jpeg, .png) and a class number (.cls) with the same name, all in any case. Other
// members are ignored, and hidden ones passed over; returns how many are hidden. Calls `on_bad`
// with a message for a sample that lacks one of the two, or whose class is not a number below
// `classes` (0: below kMaxClasses). Throws DataError if the file is not a tar file or is truncated.
int64_t index_tar(std::span<const std::byte> file,
                  const std::string& name,
                  int64_t classes,
                  const std::function<void(const TarSample&)>& on_sample,
                  const std::function<void(const std::string&)>& on_bad);

}  // namespace lockstep::data
