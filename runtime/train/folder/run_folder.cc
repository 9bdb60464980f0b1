#include "runtime/train/folder/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/checkpoint/publish.h"

namespace lockstep {
namespace {

// Opens the folder, and makes it where needed.
int open_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError("create folder", path, error.value());
  const int fd =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) throw IoError("open", path, errno);
  return fd;
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& path, const WriterLockOptions& options)
    : path_(path), folder_(open_folder(path)), lock_(folder_.fd, path, options) {
  remove_leftovers(path / "checkpoints");
}

void RunFolder::check() {
  struct stat opened {};
  struct stat named {};
  const bool there = ::fstat(folder_.fd, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                     opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!there)
    throw CheckpointError(
        "run folder '{}' was removed, moved or replaced while the run wrote there; nothing is "
        "written to what is there now",
        path_.string());
  lock_.check();
}

}  // namespace lockstep
