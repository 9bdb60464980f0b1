#pragma once
// A piece of memory that processes of one host share.
//
// It is an anonymous file (memfd): no name leads to it and it takes no space of /dev/shm, which
// containers keep small. Others map it through /proc/PID/fd, and the kernel frees it when the last
// process that has mapped it is gone, however it went: there is never anything to clean up.

#include <cstddef>
#include <cstdint>

namespace lockstep {

class SharedMapping {
 public:
  // What another process needs to map it.
  struct Source {
    int64_t process = 0;
    int64_t descriptor = -1;
    uint64_t device = 0, inode = 0;  // of the file, to know it again
    uint64_t address = 0;            // in that process
    uint64_t bytes = 0;
  };

  // Nothing.
  SharedMapping() = default;
  // New memory, zeroed and really there, from an address divisible by 2 MiB on; its whole pieces of
  // 2 MiB are huge pages where the kernel gives them (from Linux 6.1 on). Throws MemoryError, which
  // names `what`.
  SharedMapping(size_t bytes, const char* what);
  // What another process has made and still holds open. Throws MemoryError. Memory of this process
  // itself is not mapped again, and stays its maker's.
  explicit SharedMapping(const Source& source);
  SharedMapping(SharedMapping&& other) noexcept { *this = static_cast<SharedMapping&&>(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Of memory made here and not closed yet.
  Source source() const;
  // Everyone has mapped it: nobody needs its descriptor any more.
  void close_descriptor();

 private:
  bool map(int descriptor);
  void unmap();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* reserved_ = nullptr;  // bytes_ and a huge page of addresses, if mapped here; data_ is in it
  int descriptor_ = -1;
};

}  // namespace lockstep
