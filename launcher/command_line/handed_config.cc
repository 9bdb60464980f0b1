#include "launcher/command_line/handed_config.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/base/error.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kVariable = "LOCKSTEP_LAUNCH_CONFIG";  // value: a descriptor
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;

}  // namespace

std::unique_ptr<Descriptor> config_in_memory(const std::string& text) {
  auto file = std::make_unique<Descriptor>(memfd_create("lockstep-config", MFD_ALLOW_SEALING));
  if (file->fd < 0) throw IoError("make", "a file in memory", errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t bytes =
        uninterrupted([&] { return ::write(file->fd, text.data() + done, text.size() - done); });
    if (bytes < 0) throw IoError("write", "a file in memory", errno);
    done += static_cast<size_t>(bytes);
  }
  if (fcntl(file->fd, F_ADD_SEALS, kSeals) != 0) throw IoError("seal", "a file in memory", errno);
  return file;
}

std::string config_variable(const Descriptor& file) {
  return fmt::format("{}={}", kVariable, file.fd);
}

std::optional<std::string> handed_config() {
  const char* const number = std::getenv(kVariable);
  if (number == nullptr) return std::nullopt;
  const int file = std::atoi(number);
  // Other files do not have these seals.
  if (fcntl(file, F_GET_SEALS) != kSeals)
    throw ConfigError("{}: value is '{}', which is not a config from lockstep launch; unset it",
                      kVariable,
                      number);
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t bytes = uninterrupted(
        [&] { return ::pread(file, buffer, sizeof(buffer), static_cast<off_t>(text.size())); });
    if (bytes < 0) throw IoError("read", "the config of launch", errno);
    if (bytes == 0) return text;
    text.append(buffer, static_cast<size_t>(bytes));
  }
}

}  // namespace lockstep::launcher
