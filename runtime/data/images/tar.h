#pragma once
// Tar files: where their members lie.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct TarMember {
  std::string name;  // with folders, as stored
  std::span<const std::byte> data;
};

// Goes through the headers of a tar file that lies in memory (mapped: only the headers' pages are
// read). Understands ustar, GNU's long names and POSIX.1-2001 (pax) names and sizes; gives regular
// files only. Links, folders and devices are passed over; sparse files and a tar file that is
// compressed are refused.
class TarReader {
 public:
  // `name` is the file's name for messages; `file` must outlive what next() gives.
  TarReader(std::span<const std::byte> file, std::string name);

  // The next regular file; false at the end: two blocks of zeros, or the end of the file where
  // whole blocks end, which may follow one such block. Throws DataError, with the file's name and
  // the byte, on a header that is zeros with something behind it or whose checksum is wrong, or a
  // member that the file is too short for.
  bool next(TarMember* member);

 private:
  std::span<const std::byte> take_data(uint64_t size);
  [[noreturn]] void refuse_sparse(const std::string& member) const;

  std::span<const std::byte> file_;
  std::string name_;
  size_t position_ = 0;
};

}  // namespace lockstep
