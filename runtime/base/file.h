#pragma once
// Files: whole-file reads, memory maps, and durable writes. All throw IoError; a call that a signal
// interrupts is made again.

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

// The result of a system call, which is made again while a signal interrupts it.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A file descriptor that is closed on scope exit: for files whose closing can lose nothing.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
};

// The descriptor of a file to read, which the caller closes, and its size in `bytes`. Refuses what
// is no regular file (IoError): a pipe or a device may never end, or never begin.
int open_regular(const std::filesystem::path& path, uint64_t& bytes);

// Opens a file that a run makes itself, for the caller to close: `flags` are those of open(2), such
// as O_WRONLY | O_CREAT | O_APPEND. All files are opened for writing by this function: nobody may
// redirect what is written by a link, a pipe or a device of that name (IoError). Links of the
// folders above are followed. `name` is looked up in the open folder `folder`, and is `path` in
// messages.
int open_to_write(const std::filesystem::path& path, int flags);
int open_to_write(int folder, const char* name, const std::filesystem::path& path, int flags);

// What a path leads to; links are followed. If that cannot be found out (a loop of links, a folder
// that may not be read, a name too long), something is there: whoever opens it is told the reason.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);

// The whole file; refuses one larger than `limit_bytes` (IoError with EFBIG).
std::string read_file(const std::filesystem::path& path, size_t limit_bytes);

// A read-only memory map of a whole file; an empty file gives an empty span. Movable; unmaps when
// destroyed. Where somebody cuts the file short meanwhile, or its disk fails, the process ends with
// a line that names it and the code `on_fault`, like an uncaught IoError's.
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

// Writes a file sequentially with checked writes; finish() makes it durable (fsync) and closes it.
// Destroying an unfinished writer closes the file and leaves it as it is: put it in a folder that
// is renamed only once whole.
class FileWriter {
 public:
  // Makes the file anew. A file or link of that name is removed: what it leads to stays.
  explicit FileWriter(const std::filesystem::path& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void overwrite(const void* data, size_t bytes, uint64_t offset);  // of what is written already
  void finish();
  void close();  // instead, without waiting for the disk

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Refuses what must not be removed or replaced, since it is no file of a user (IoError): a folder, a
// pipe, a device, or a link into /proc such as /dev/stdout.
void check_replaceable(const std::filesystem::path& path);

// Has `write` make a whole, durable file at the path that it is given, path.tmp, and renames that
// to `path`: readers see the old file or the new one. A link of that name is replaced, and what it
// leads to stays. What is not check_replaceable() is refused. Where `write` throws nothing of it
// stays.
void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& unfinished)>& write);

// Replaces a file by `text`.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// fsync of a folder, so that renames in it are durable.
void sync_folder(const std::filesystem::path& path);

}  // namespace lockstep
