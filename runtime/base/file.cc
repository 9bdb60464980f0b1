#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/mapping_fault.h"
#include "runtime/base/names.h"

namespace lockstep {
namespace {

void refuse_other_kinds(const char* operation, mode_t mode, const std::filesystem::path& path) {
  if (S_ISREG(mode)) return;
  if (S_ISDIR(mode)) throw IoError(operation, path, EISDIR);
  const char* kind = S_ISFIFO(mode)                   ? "a pipe"
                     : S_ISSOCK(mode)                 ? "a socket"
                     : S_ISBLK(mode) || S_ISCHR(mode) ? "a device"
                                                      : "something else";
  throw IoError(operation, path, fmt::format("it is {}, not a regular file", kind));
}

// The status of an open regular file. Throws IoError if it is another kind of file.
struct stat check_regular(int fd, const char* operation, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw IoError("stat", path, errno);
  refuse_other_kinds(operation, status.st_mode, path);
  return status;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd >= 0) ::close(fd);
}

int open_regular(const std::filesystem::path& path, uint64_t& bytes) {
  // Without O_NONBLOCK, opening a pipe would block. For a regular file it has no effect.
  const int fd =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) {
    const int error = errno;
    throw IoError("open", path, error, look_alike_remedy(path, error));
  }
  try {
    bytes = static_cast<uint64_t>(check_regular(fd, "read", path).st_size);
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

int open_to_write(const std::filesystem::path& path, int flags) {
  return open_to_write(AT_FDCWD, path.c_str(), path, flags);
}

int open_to_write(int folder, const char* name, const std::filesystem::path& path, int flags) {
  constexpr int kAlways = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;  // O_NONBLOCK: a pipe must not block
  const int fd = uninterrupted([&] { return ::openat(folder, name, flags | kAlways, 0644); });
  if (fd < 0) {
    const int error = errno;
    struct stat status {};
    if (error == ELOOP && ::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
      throw IoError(
          "write", path, "it is a link, and a run does not write through links; remove it");
    if (error == ENXIO) throw IoError("write", path, "it is a pipe, not a regular file");
    throw IoError((flags & O_CREAT) != 0 ? "create" : "open", path, error);
  }
  try {
    check_regular(fd, "write", path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes) {
  uint64_t bytes = 0;  // at this moment; the limit applies to the bytes that are read
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
  check_replaceable(path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw IoError("create", path_, errno);
  descriptor_ = open_to_write(path, O_WRONLY | O_CREAT | O_EXCL);
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

void check_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  // Either nothing is there, or the writer will get the error.
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISLNK(status.st_mode)) return refuse_other_kinds("replace", status.st_mode, path);
  std::error_code error;
  if (std::filesystem::read_symlink(path, error).string().starts_with("/proc/"))
    throw IoError("replace", path, "it is a link into /proc");
}

void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& unfinished)>& write) {
  check_replaceable(path);
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
