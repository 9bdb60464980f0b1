#pragma once
// Images and labels in IDX files (the format of MNIST): big-endian header, then unsigned bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

// A parsed IDX array of unsigned bytes.
struct IdxArray {
  std::vector<int64_t> extents;       // outermost first; all >= 1
  std::span<const std::byte> values;  // (extents...), a part of the parsed bytes
};

// Parses a decompressed IDX file that has min_rank to max_rank dimensions. `name`: the file's, for
// messages. Throws DataError on another magic number, element type or rank, on an extent of zero,
// and if the file's length is not that of its header.
IdxArray parse_idx(std::span<const std::byte> bytes,
                   int min_rank,
                   int max_rank,
                   const std::string& name);

}  // namespace lockstep::data
