#include "collectives/tcp/meeting_file.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"

namespace lockstep {
namespace {

constexpr const char* kFirstLine = "lockstep-rendezvous 1";
constexpr size_t kLimitBytes = 65536;

// Addresses of the interfaces that are up, IPv4 first, without those that only this host or this
// link knows.
std::vector<std::string> interface_addresses() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> interfaces(found, freeifaddrs);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[NI_MAXHOST] = "";
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
        continue;
      if (std::strchr(text, '%') == nullptr) addresses.emplace_back(text);  // link-local: no
    }
  }
  return addresses;
}

}  // namespace

Meeting meeting_here(int port, uint64_t nonce, const std::string& run) {
  Meeting meeting{interface_addresses(), host_identity(), port, nonce, run};
  meeting.addresses.push_back(host_name());
  return meeting;
}

void publish_meeting(const std::string& path, const Meeting& meeting) {
  std::string text = fmt::format("{}\nhost {}\nport {}\nnonce {}\nrun {}\n",
                                 kFirstLine,
                                 meeting.host,
                                 meeting.port,
                                 meeting.nonce,
                                 meeting.run);
  for (const std::string& address : meeting.addresses) text += "address " + address + "\n";
  const std::string temporary = fmt::format("{}.{}", path, meeting.nonce);
  try {
    FileWriter file(temporary);
    file.write(text);
    file.finish();
    std::filesystem::rename(temporary, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw ConfigError(
        "LOCKSTEP_RENDEZVOUS is 'file://{}'; allowed: a file in a folder where rank 0 may write "
        "({})",
        path,
        error.what());
  }
}

std::optional<Meeting> read_meeting(const std::string& path) {
  std::istringstream lines;
  try {
    lines.str(read_file(path, kLimitBytes));
  } catch (const IoError&) {
    return std::nullopt;
  }
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return std::nullopt;
  Meeting meeting;
  while (std::getline(lines, line)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, space),
                      value = line.substr(std::min(space + 1, line.size()));
    if (key == "host") meeting.host = value;
    if (key == "run") meeting.run = value;
    if (key == "port") std::istringstream(value) >> meeting.port;
    if (key == "nonce") std::istringstream(value) >> meeting.nonce;
    if (key == "address") meeting.addresses.push_back(value);
  }
  if (meeting.port <= 0 || meeting.nonce == 0 || meeting.addresses.empty()) return std::nullopt;
  if (meeting.host == host_identity())
    meeting.addresses.insert(meeting.addresses.begin(), "localhost");
  return meeting;
}

void remove_meeting(const std::string& path, uint64_t nonce) {
  const std::optional<Meeting> meeting = read_meeting(path);
  if (meeting && meeting->nonce == nonce) ::unlink(path.c_str());
}

}  // namespace lockstep
