#pragma once
// CIFAR-10 and CIFAR-100 files in their authors' binary layout.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::data {

inline constexpr int kCifarSide = 32;
inline constexpr int kCifarChannels = 3;

// Which of a record's leading bytes is the label, and how many labels there are.
struct CifarLayout {
  int label_bytes = 1;  // CIFAR-10: label; CIFAR-100: coarse, fine
  int label_at = 0;
  int classes = 10;
  size_t record_bytes() const {
    return static_cast<size_t>(label_bytes + kCifarSide * kCifarSide * kCifarChannels);
  }
};

// The number of records in a decompressed file of this layout. `name`: for messages. Throws
// DataError if the file is empty or its size is not a multiple of a record's.
int64_t count_cifar_records(std::span<const std::byte> file,
                            const CifarLayout& layout,
                            const std::string& name);

// The label of a record, which may be out of the range of classes.
int32_t cifar_label(std::span<const std::byte> file, const CifarLayout& layout, int64_t record);

// Writes the record's pixels, which are stored plane by plane, as (32, 32, 3) u8.
void read_cifar_pixels(std::span<const std::byte> file,
                       const CifarLayout& layout,
                       int64_t record,
                       std::byte* pixels);

}  // namespace lockstep::data
