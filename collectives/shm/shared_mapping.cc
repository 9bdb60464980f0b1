#include "collectives/shm/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// On huge pages where the kernel gives them to shared memory, which it does not unless told
// (/sys/kernel/mm/transparent_hugepage/shmem_enabled).
std::byte* map(int descriptor, size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return nullptr;
  ::madvise(address, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(address);
}

// Numbers of processes and descriptors mean other ones in another container.
bool is_file(int descriptor, const SharedMapping::Source& source) {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 && status.st_dev == source.device &&
         status.st_ino == source.inode;
}

}  // namespace

SharedMapping::SharedMapping(size_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  descriptor_ = ::memfd_create("lockstep", MFD_CLOEXEC);
  // Takes the pages now: a page that cannot be had later on would end the process by a signal.
  int error = descriptor_ < 0 ? errno : EINTR;  // as a signal may make it
  while (descriptor_ >= 0 && error == EINTR)
    error = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (error == 0) data_ = map(descriptor_, bytes);
  if (data_ == nullptr) {
    close_descriptor();
    throw MemoryError("cannot allocate {} bytes of shared memory for {}: {}",
                      bytes,
                      what,
                      std::strerror(error != 0 ? error : ENOMEM));
  }
  mapped_ = true;
}

SharedMapping::SharedMapping(const Source& source) : bytes_(source.bytes) {
  if (bytes_ == 0) return;
  if (source.process == ::getpid() && is_file(static_cast<int>(source.descriptor), source)) {
    data_ = reinterpret_cast<std::byte*>(source.address);
    return;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", source.process, source.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) throw MemoryError("cannot open {}: {}", path, std::strerror(errno));
  const bool same = is_file(descriptor, source);
  if (same) data_ = map(descriptor, bytes_);
  ::close(descriptor);
  if (data_ == nullptr)
    throw MemoryError("cannot map {}: {}", path, same ? "no memory" : "it is another file");
  mapped_ = true;
}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMapping::~SharedMapping() {
  close_descriptor();
  if (mapped_) ::munmap(data_, bytes_);
}

SharedMapping::Source SharedMapping::source() const {
  if (bytes_ == 0) return {};
  LOCKSTEP_CHECK(descriptor_ >= 0);
  struct stat status = {};
  LOCKSTEP_CHECK(::fstat(descriptor_, &status) == 0);
  return {::getpid(),
          descriptor_,
          status.st_dev,
          status.st_ino,
          reinterpret_cast<uint64_t>(data_),
          bytes_};
}

void SharedMapping::close_descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace lockstep
