#pragma once
// Memory that processes of one host share.
//
// It is an anonymous file (memfd): it has no name and uses no space of /dev/shm, which containers
// keep small. Other processes map it through /proc/PID/fd. The kernel frees it once the last
// process that has mapped it ends, in whatever way; so there is never anything to clean up.

#include <cstddef>
#include <cstdint>

namespace lockstep::collectives {

class SharedMapping {
 public:
  // What another process needs to map the memory.
  struct Source {
    int64_t process = 0;
    int64_t descriptor = -1;
    uint64_t device = 0, inode = 0;  // of the file, to recognize it
    uint64_t address = 0;            // in that process
    uint64_t bytes = 0;
  };

  // An empty mapping.
  SharedMapping() = default;
  // Allocates zeroed memory, with all its pages, at an address divisible by 2 MiB. Each full 2 MiB
  // of it is a huge page if the kernel supports that (Linux 6.1 or newer). Throws MemoryError,
  // which names `what`.
  SharedMapping(size_t bytes, const char* what);
  // Maps memory that another process has made and still holds open. Throws MemoryError. Memory of
  // this process itself is not mapped again, and stays owned by the mapping that made it.
  explicit SharedMapping(const Source& source);
  // The same memory without its pages, each of which lies in the NUMA domain of the process that
  // takes it first. Call take_pages() before any use of it.
  static SharedMapping without_pages(size_t bytes, const char* what);
  SharedMapping(SharedMapping&& other) noexcept { *this = static_cast<SharedMapping&&>(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Only for memory that this mapping has made and not closed yet.
  Source source() const;
  // Allocates the pages of the bytes [begin, end) that are not there yet, and the huge pages whose
  // middle is one of these bytes. Does nothing if this process maps the memory already by the
  // mapping that made it. Throws MemoryError. Not after close_descriptor().
  void take_pages(size_t begin, size_t end, const char* what);
  // Closes the descriptor once all others have mapped the memory and all its pages are there.
  void close_descriptor();

 private:
  bool map(int descriptor);
  void unmap();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* reserved_ = nullptr;  // bytes_ plus a huge page of addresses; contains data_
  int descriptor_ = -1;
};

}  // namespace lockstep::collectives
