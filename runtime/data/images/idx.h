#pragma once
// Images and labels in IDX files (the format of MNIST): big-endian header, then unsigned bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// An IDX array of unsigned bytes, as parsed.
struct IdxArray {
  std::vector<int64_t> extents;       // outermost first; all >= 1
  std::span<const std::byte> values;  // product of the extents; lies in the parsed bytes
};

// Parses the content of a decompressed IDX file with `rank_least` to `rank_most` dimensions. `name`
// is the file's name for messages. Throws DataError on another magic number, element type or rank,
// on an extent of zero, and when the file is shorter or longer than its header says.
IdxArray parse_idx(std::span<const std::byte> bytes,
                   int rank_least,
                   int rank_most,
                   const std::string& name);

}  // namespace lockstep
