#pragma once
// Arrays in NumPy's .npy files: a header that tells type and shape, then the values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class NpyType { kUint8, kInt32, kInt64, kFloat32 };

struct NpyArray {
  NpyType type = NpyType::kUint8;
  std::vector<int64_t> extents;  // outermost first; one or more, all >= 1
  // Little-endian, the last extent's neighbours side by side, not necessarily aligned; lies in the
  // parsed bytes.
  std::span<const std::byte> values;

  int64_t count() const { return extents[0]; }
  // Elements of one of them.
  int64_t row() const;
};

// "uint8", "float32".
const char* name_of(NpyType type);
size_t size_of(NpyType type);

// Parses the content of a decompressed .npy file of version 1.0, 2.0 or 3.0. `name` is the file's
// name for messages. Throws DataError where it is none, the header is not that of a plain array as
// NumPy writes it, the type is another one, the order is Fortran's, an extent is zero, or the file
// is shorter or longer than its header says.
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
