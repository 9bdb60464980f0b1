#include "collectives/shm/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep::collectives {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers lack

// Allocates a file's pages now: a page that is missing later would end the process by a signal.
// Returns an error number, or 0.
int allocate_pages(int descriptor, size_t offset, size_t bytes) {
  int error = EINTR;  // a signal may interrupt the call
  while (error == EINTR)
    error = ::posix_fallocate(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return error;
}

// Asks for huge pages explicitly, before other small pages are allocated: by default shared memory
// does not get them (/sys/kernel/mm/transparent_hugepage/shmem_enabled). If the kernel has none,
// the memory stays on small pages. `begin` and `end` are multiples of a huge page.
void allocate_huge_pages(int descriptor, std::byte* data, size_t begin, size_t end) {
  if (begin >= end) return;
  // The kernel makes a huge page only where there is a small one already, and in its NUMA domain.
  for (size_t page = begin; page < end; page += kHugePage) {
    if (allocate_pages(descriptor, page, 1) != 0) return;
  }
  if (::madvise(data + begin, end - begin, kCollapse) != 0)
    log_debug("shared memory of {} bytes is not all on huge pages: {}",
              end - begin,
              std::strerror(errno));
}

// The first huge page whose middle is not before this byte.
size_t huge_page_from(size_t byte) { return (byte + kHugePage / 2 - 1) / kHugePage * kHugePage; }

[[noreturn]] void throw_not_allocated(size_t bytes, const char* what, int error) {
  throw MemoryError(
      "cannot allocate {} bytes of shared memory for {}: {}", bytes, what, std::strerror(error));
}

// Checks the file itself: in another container the same process id and descriptor mean something
// else.
bool is_file(int descriptor, const SharedMapping::Source& source) {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 && status.st_dev == source.device &&
         status.st_ino == source.inode;
}

}  // namespace

SharedMapping::SharedMapping(size_t bytes, const char* what)
    : SharedMapping(without_pages(bytes, what)) {
  take_pages(0, bytes, what);
}

SharedMapping SharedMapping::without_pages(size_t bytes, const char* what) {
  SharedMapping made;
  if (bytes == 0) return made;
  made.bytes_ = bytes;
  made.descriptor_ = ::memfd_create("lockstep", MFD_CLOEXEC);
  if (made.descriptor_ < 0 || ::ftruncate(made.descriptor_, static_cast<off_t>(bytes)) != 0)
    throw_not_allocated(bytes, what, errno);
  if (!made.map(made.descriptor_)) throw_not_allocated(bytes, what, ENOMEM);
  return made;
}

void SharedMapping::take_pages(size_t begin, size_t end, const char* what) {
  if (descriptor_ < 0 || begin == end) return;
  const size_t huge_end = std::min(huge_page_from(end), bytes_ / kHugePage * kHugePage);
  allocate_huge_pages(descriptor_, data_, huge_page_from(begin), huge_end);
  const int error = allocate_pages(descriptor_, begin, end - begin);
  if (error != 0) throw_not_allocated(bytes_, what, error);
}

SharedMapping::SharedMapping(const Source& source) : bytes_(source.bytes) {
  if (bytes_ == 0) return;
  if (source.process == ::getpid() && is_file(static_cast<int>(source.descriptor), source)) {
    data_ = reinterpret_cast<std::byte*>(source.address);
    return;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", source.process, source.descriptor);
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) throw MemoryError("cannot open {}: {}", path, std::strerror(errno));
  const bool same = is_file(descriptor_, source);
  if (same && map(descriptor_)) return;
  close_descriptor();
  throw MemoryError("cannot map {}: {}", path, same ? "no memory" : "it is another file");
}

// Maps the file at an address where a huge page may begin, so that the file's huge pages are mapped
// as such. Returns false if there is no room.
bool SharedMapping::map(int descriptor) {
  reserved_ = ::mmap(nullptr, bytes_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved_ == MAP_FAILED) reserved_ = nullptr;
  if (reserved_ == nullptr) return false;
  const auto begin = reinterpret_cast<uintptr_t>(reserved_);
  void* const aligned = reinterpret_cast<void*>((begin + kHugePage - 1) / kHugePage * kHugePage);
  constexpr int kFlags = MAP_SHARED | MAP_FIXED;
  if (::mmap(aligned, bytes_, PROT_READ | PROT_WRITE, kFlags, descriptor, 0) == MAP_FAILED) {
    unmap();
    return false;
  }
  data_ = static_cast<std::byte*>(aligned);
  return true;
}

void SharedMapping::unmap() {
  if (reserved_ != nullptr) ::munmap(reserved_, bytes_ + kHugePage);
  reserved_ = nullptr;
}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_, other.reserved_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMapping::~SharedMapping() {
  close_descriptor();
  unmap();
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

}  // namespace lockstep::collectives
