#include "collectives/tcp/meeting_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {

void publish_meeting(const std::string& path, const Meeting& meeting) {
  const std::string temporary = fmt::format("{}.{}", path, meeting.nonce);
  try {
    check_replaceable(path);
    FileWriter file(temporary);
    file.write(text_of(meeting));
    file.finish();
    if (uninterrupted([&] { return ::rename(temporary.c_str(), path.c_str()); }) != 0)
      throw IoError("rename", temporary, errno);
  } catch (const IoError& error) {
    ::unlink(temporary.c_str());
    throw ConfigError(
        "LOCKSTEP_RENDEZVOUS is 'file://{}'; allowed: a file in a folder where rank 0 may write "
        "({})",
        path,
        error.what());
  }
}

std::optional<Meeting> read_meeting(const std::string& path) {
  constexpr size_t kLimitBytes = 65536;
  try {
    return meeting_from(read_file(path, kLimitBytes));
  } catch (const IoError&) {
    return std::nullopt;
  }
}

void remove_meeting(const std::string& path, uint64_t nonce) {
  const std::optional<Meeting> meeting = read_meeting(path);
  if (meeting && meeting->nonce == nonce) ::unlink(path.c_str());
}

}  // namespace lockstep
