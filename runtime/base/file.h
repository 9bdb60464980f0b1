#pragma once
// Files: reads of entire files, memory maps, and durable writes. All functions throw IoError. A
// system call that a signal interrupts is repeated.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace lockstep {

struct WatchedMapping;

// The result of a system call, which is repeated as long as a signal interrupts it.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A file descriptor that is closed at scope exit. Only for files whose closing cannot lose data.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
};

// Opens a file for reading. Returns the descriptor, which the caller closes, and sets `bytes` to
// the file's size. Throws IoError if the path is not a regular file, because reads of a pipe or
// device may block forever or never end.
int open_regular(const std::filesystem::path& path, uint64_t& bytes);

// Opens a file that a run creates or writes itself. The caller closes it. `flags` are those of
// open(2), such as O_WRONLY | O_CREAT | O_APPEND. Every file is opened for writing through this
// function. It throws IoError if the path is a link, a pipe or a device, so that nobody can
// redirect the output. Links among the parent folders are followed. In the second form `name` is
// looked up in the open folder `folder`, and `path` is used only in messages.
int open_to_write(const std::filesystem::path& path, int flags);
int open_to_write(int folder, const char* name, const std::filesystem::path& path, int flags);

// What is at a path; links are followed. If that cannot be determined (a loop of links, an
// unreadable folder, a name too long), is_there() returns true: whoever opens the path gets the
// reason.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);

// The contents of a file. Throws IoError with EFBIG if it is larger than `limit_bytes`.
std::string read_file(const std::filesystem::path& path, size_t limit_bytes);

// A read-only memory map of an entire file; an empty file gives an empty span. Movable; unmaps when
// destroyed. If somebody truncates the file while it is mapped, or its disk fails, the process ends
// with a line that names the file and with the exit code `on_fault`.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path, ExitCode on_fault = ExitCode::kCheckpoint);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  WatchedMapping* watched_ = nullptr;
};

// Writes a file sequentially with checked writes. finish() makes it durable (fsync) and closes it.
// Destroying an unfinished writer closes the file and leaves it incomplete. So put it in a folder
// that is renamed only once it is complete.
class FileWriter {
 public:
  // Creates the file. An existing file or link of that name is removed first; the link's target is
  // untouched.
  explicit FileWriter(const std::filesystem::path& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void overwrite(const void* data, size_t bytes, uint64_t offset);  // of bytes already written
  void finish();
  void close();  // instead of finish(), without waiting for the disk

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Throws IoError if the path must not be removed or replaced, because it is not a user's file: a
// folder, a pipe, a device, or a link into /proc such as /dev/stdout.
void check_replaceable(const std::filesystem::path& path);

// Replaces `path` atomically: readers see the old file or the new one. Calls `write` with the path
// of a temporary file, path.tmp, which `write` must make complete and durable, and renames it to
// `path`. A link of that name is replaced; its target is untouched. Throws IoError if
// check_replaceable() does. If `write` throws, the temporary file is removed.
void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& unfinished)>& write);

// Replaces a file by one with the contents `text`.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Calls fsync on a folder, so that renames in it are durable.
void sync_folder(const std::filesystem::path& path);

}  // namespace lockstep
