#pragma once
// Reads tar files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::data {

struct TarMember {
  std::string name;  // with folders, as stored
  std::span<const std::byte> data;
};

// Iterates over the regular files in a tar file that is in memory or mapped; of a mapped file only
// the pages with headers are read. Understands ustar, GNU's long names and POSIX.1-2001 (pax) names
// and sizes. Skips links, folders and devices. Rejects sparse members and compressed tar files.
class TarReader {
 public:
  // `name`: the file's, for messages. `file` must outlive the members that next() returns.
  TarReader(std::span<const std::byte> file, std::string name);

  // Sets *member to the next regular file. Returns false at the end, which is two blocks of zeros,
  // or the end of the file after a whole block or after one block of zeros. Throws DataError with
  // the file's name and the byte offset if a header has a wrong checksum, if a single block of
  // zeros is followed by other data, or if the file is too short for a member.
  bool next(TarMember* member);

 private:
  std::span<const std::byte> take_data(uint64_t size);
  void refuse_other_formats() const;
  [[noreturn]] void refuse_sparse(const std::string& member) const;

  std::span<const std::byte> file_;
  std::string name_;
  size_t position_ = 0;
};

}  // namespace lockstep::data
