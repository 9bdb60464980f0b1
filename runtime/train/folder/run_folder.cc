#include "runtime/train/folder/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/passing_error.h"
#include "runtime/checkpoint/format/publish.h"

namespace lockstep::train {
namespace {

// Opens the folder; creates it if needed, but not beside one whose name looks the same: a resumed
// run would begin again in it.
int open_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (const std::string remedy = look_alike_remedy(path.string(), ENOENT); !remedy.empty())
    throw IoError("create folder", path, remedy);
  std::filesystem::create_directories(path, error);
  if (error) throw IoError("create folder", path, error.value());
  const int fd =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) throw IoError("open", path, errno);
  return fd;
}

// Checked before the first step and before such a file is opened.
void refuse_links(const std::filesystem::path& folder) {
  for (const char* name : {"metrics.jsonl", "log.txt"}) {
    std::error_code error;
    if (std::filesystem::is_symlink(folder / name, error))
      throw CheckpointError(
          "'{}' is a link, and a run does not write through links; remove it, or give "
          "another --run-dir",
          (folder / name).string());
  }
  const std::filesystem::path checkpoints = folder / "checkpoints";
  std::error_code error;
  if (std::filesystem::is_symlink(checkpoints, error) && !is_folder(checkpoints))
    throw CheckpointError(
        "'{}' is a link that leads to no folder; make that folder, or remove the link",
        checkpoints.string());
}

// Replaces the files to which the run appends by copies, if they have other links. So a copy of the
// folder that shares its files (cp -al, snapshots) keeps its contents.
void separate_files(const std::filesystem::path& folder) {
  for (const char* name : {"metrics.jsonl", "log.txt"}) {
    const std::filesystem::path path = folder / name;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink == 1)
      continue;
    replace_file(path, [&](const std::filesystem::path& unfinished) {
      const MappedFile shared(path);
      FileWriter copy(unfinished);
      copy.write(shared.bytes().data(), shared.bytes().size());
      copy.finish();
    });
  }
}

// Removes what a process left that was killed while it replaced one of the run's files.
void remove_unfinished(const std::filesystem::path& folder) {
  for (const char* name : {"config.textproto",
                           "environment.json",
                           "metrics.jsonl",
                           "log.txt",
                           "end.json",
                           "generation",
                           "local_copies",
                           "timeline.json",
                           "buckets.json",
                           "algorithms.txt"})
    ::unlink((folder / name).string().append(".tmp").c_str());
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& path, const WriterLockOptions& options)
    : path_(path),
      generation_(options.generation),
      folder_(open_folder(path)),
      lock_((check_generation(path, generation_), folder_.fd), path, options) {
  struct stat status {};
  if (::fstat(folder_.fd, &status) != 0) throw IoError("stat", path, errno);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  refuse_links(path);
  // This process has the lock, so only its own `launch` can raise the number now.
  check_generation(path, generation_);
  if (generation_.number > 0) write_generation(path, generation_);
  remove_unfinished(path);
  separate_files(path);
  checkpoint::remove_leftovers(path / "checkpoints");
}

void RunFolder::check() {
  struct stat named {};
  const bool answered = ::stat(path_.c_str(), &named) == 0;
  const bool there = answered ? named.st_dev == device_ && named.st_ino == inode_
                              : errno != ENOENT && errno != ENOTDIR;
  if (!there)
    throw CheckpointError(
        "run folder '{}' was removed, moved or replaced while the run wrote there; nothing is "
        "written to what is there now",
        path_.string());
  if (!answered) return;
  try {
    // before the lock, which a later generation has made again
    check_generation(path_, generation_);
    lock_.check();
  } catch (const IoError& error) {
    if (!may_pass(error.error_number())) throw;
  }
}

}  // namespace lockstep::train
