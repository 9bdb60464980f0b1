#include "collectives/tcp/rendezvous_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::collectives {

void publish_rendezvous_info(const std::string& path, const RendezvousInfo& info) {
  const std::string temporary = fmt::format("{}.{}", path, info.nonce);
  try {
    check_replaceable(path);
    FileWriter file(temporary);
    file.write(text_of(info));
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

std::optional<RendezvousInfo> read_rendezvous_info(const std::string& path) {
  constexpr size_t kLimitBytes = 65536;
  try {
    return parse_rendezvous_info(read_file(path, kLimitBytes));
  } catch (const IoError&) {
    return std::nullopt;
  }
}

void remove_rendezvous_file(const std::string& path, uint64_t nonce) {
  const std::optional<RendezvousInfo> info = read_rendezvous_info(path);
  if (info && info->nonce == nonce) ::unlink(path.c_str());
}

}  // namespace lockstep::collectives
