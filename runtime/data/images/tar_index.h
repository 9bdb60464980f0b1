#pragma once
// Which samples a tar file in the manner of WebDataset has.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep {

// An image within a tar file, and its class.
struct TarSample {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  int32_t label = 0;
};

// Gives the samples of the tar file `file`, in its order, to `good`. Members without an image
// (.jpg, .jpeg, .png in any case) or class number (.cls) are passed over; a sample that lacks one
// of the two, or whose class is no number from 0 to `classes` - 1 (0: kMostClasses - 1), is given
// to `bad` in words. Throws DataError where the file is no tar file or is truncated.
void index_tar(std::span<const std::byte> file,
               const std::string& name,
               int64_t classes,
               const std::function<void(const TarSample&)>& good,
               const std::function<void(const std::string&)>& bad);

}  // namespace lockstep
