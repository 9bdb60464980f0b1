#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/mapping_fault.h"

namespace lockstep {
namespace {

void refuse_other_kinds(mode_t mode, const std::filesystem::path& path) {
  if (S_ISREG(mode)) return;
  if (S_ISDIR(mode)) throw IoError("read", path, EISDIR);
  const char* kind = S_ISFIFO(mode)                   ? "a pipe"
                     : S_ISSOCK(mode)                 ? "a socket"
                     : S_ISBLK(mode) || S_ISCHR(mode) ? "a device"
                                                      : "something else";
  throw IoError("read", path, fmt::format("it is {}, not a regular file", kind));
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd >= 0) ::close(fd);
}

int open_regular(const std::filesystem::path& path, uint64_t& bytes) {
  // Without O_NONBLOCK a pipe would be waited for; of a regular file it says nothing.
  const int fd =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) throw IoError("open", path, errno);
  try {
    struct stat status {};
    if (::fstat(fd, &status) != 0) throw IoError("stat", path, errno);
    refuse_other_kinds(status.st_mode, path);
    bytes = static_cast<uint64_t>(status.st_size);
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes) {
  uint64_t bytes = 0;  // as it is now; what is read counts
  const Descriptor file(open_regular(path, bytes));
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = uninterrupted([&] { return ::read(file.fd, buffer, sizeof(buffer)); });
    if (got < 0) throw IoError("read", path, errno);
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > limit_bytes) throw IoError("read", path, EFBIG);
    text.append(buffer, static_cast<size_t>(got));
  }
}

MappedFile::MappedFile(const std::filesystem::path& path, ExitCode on_fault) {
  uint64_t bytes = 0;
  const Descriptor file(open_regular(path, bytes));
  size_ = static_cast<size_t>(bytes);
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw IoError("map", path, errno);
  }
  watched_ = watch_mapping(data_, size_, path, on_fault);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      watched_(std::exchange(other.watched_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(watched_, other.watched_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unwatch_mapping(watched_);
  ::munmap(data_, size_);
}

FileWriter::FileWriter(const std::filesystem::path& path) : path_(path) {
  descriptor_ = uninterrupted(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); });
  if (descriptor_ < 0) throw IoError("create", path_, errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t part = std::min<size_t>(bytes, size_t{1} << 30);
    const ssize_t wrote = uninterrupted([&] { return ::write(descriptor_, next, part); });
    if (wrote < 0) throw IoError("write", path_, errno);
    next += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
}

void FileWriter::overwrite(const void* data, size_t bytes, uint64_t offset) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = uninterrupted(
        [&] { return ::pwrite(descriptor_, next, bytes, static_cast<off_t>(offset)); });
    if (wrote < 0) throw IoError("write", path_, errno);
    next += wrote;
    offset += static_cast<uint64_t>(wrote);
    bytes -= static_cast<size_t>(wrote);
  }
}

void FileWriter::finish() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) throw IoError("sync", path_, errno);
  close();
}

void FileWriter::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) throw IoError("close", path_, errno);
}

void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& unfinished)>& write) {
  const std::filesystem::path unfinished = path.string() + ".tmp";
  try {
    write(unfinished);
    if (uninterrupted([&] { return ::rename(unfinished.c_str(), path.c_str()); }) != 0)
      throw IoError("rename", unfinished, errno);
  } catch (...) {
    ::unlink(unfinished.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  replace_file(path, [&](const std::filesystem::path& unfinished) {
    FileWriter writer(unfinished);
    writer.write(text);
    writer.finish();
  });
}

void sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (folder.fd < 0) throw IoError("open", path, errno);
  if (uninterrupted([&] { return ::fsync(folder.fd); }) != 0) throw IoError("sync", path, errno);
}

}  // namespace lockstep
