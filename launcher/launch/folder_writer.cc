#include "launcher/launch/folder_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <sstream>

#include "runtime/base/file.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kSilenceSeconds = 60;  // the same as WriterLockOptions::silence_s

bool is_held(int file, const std::string& text) {
  if (text.find("\nbeat ") != std::string::npos) {
    struct stat status {};
    return ::fstat(file, &status) == 0 &&
           status.st_mtim.tv_sec + kSilenceSeconds > std::time(nullptr);
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

std::optional<FolderWriter> writer_of(const std::filesystem::path& run_dir) {
  const Descriptor file(uninterrupted([&] {
    return ::open((run_dir / "writer.lock").c_str(),
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  }));
  char buffer[4096];
  const ssize_t bytes =
      file.fd < 0 ? 0 : uninterrupted([&] { return ::read(file.fd, buffer, sizeof(buffer)); });
  const std::string text(buffer, static_cast<size_t>(bytes > 0 ? bytes : 0));
  if (file.fd < 0 || !is_held(file.fd, text)) return std::nullopt;
  FolderWriter writer;
  std::istringstream lines(text);
  for (std::string name, value; lines >> name >> value;) {
    if (name == "host") writer.host = value;
    if (name == "pid") writer.pid = value;
  }
  return writer;
}

}  // namespace lockstep::launch
