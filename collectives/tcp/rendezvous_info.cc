#include "collectives/tcp/rendezvous_info.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>

#include "collectives/tcp/socket.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr const char* kFirstLine = "lockstep-rendezvous 1";

// Whether the interface is named `network`, or its address is in that network.
bool is_in(const ifaddrs& interface, std::string_view network) {
  if (network == interface.ifa_name) return true;
  const size_t slash = network.find('/');
  in_addr base{};
  if (slash == std::string_view::npos || interface.ifa_addr->sa_family != AF_INET ||
      inet_pton(AF_INET, std::string(network.substr(0, slash)).c_str(), &base) != 1)
    return false;
  const int bits = parse_as<int>(network.substr(slash + 1)).value_or(-1);
  if (bits < 0 || bits > 32) return false;
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  const uint32_t own =
      ntohl(reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr.s_addr);
  return (own & mask) == (ntohl(base.s_addr) & mask);
}

bool is_in_any(const ifaddrs& interface, std::string_view networks) {
  while (!networks.empty()) {
    const size_t comma = std::min(networks.find(','), networks.size());
    if (is_in(interface, networks.substr(0, comma))) return true;
    networks.remove_prefix(std::min(comma + 1, networks.size()));
  }
  return false;
}

// Addresses of the interfaces that are up, IPv4 first. Loopback and link-local addresses are left
// out.
std::vector<std::string> interface_addresses(std::string_view networks) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> interfaces(found, freeifaddrs);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      if (!networks.empty() && !is_in_any(*entry, networks)) continue;
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      const std::string address = numeric_address(*entry->ifa_addr, length);
      const bool of_link = address.find('%') != std::string::npos;
      if (!address.empty() && !of_link) addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace

std::vector<std::string> addresses_of_name(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> entries(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    addresses.push_back(numeric_address(*entry->ai_addr, entry->ai_addrlen));
  return addresses;
}

RendezvousInfo local_rendezvous_info(int port,
                                     uint64_t nonce,
                                     const std::string& run,
                                     std::string_view networks) {
  RendezvousInfo info{interface_addresses(networks), host_identity(), port, nonce, run};
  if (!networks.empty()) return info;
  const std::vector<std::string> named = addresses_of_name(host_name());
  std::stable_partition(
      info.addresses.begin(), info.addresses.end(), [&](const std::string& address) {
        return std::find(named.begin(), named.end(), address) != named.end();
      });
  info.addresses.push_back(host_name());
  return info;
}

std::string host_of(const RendezvousInfo& info) { return info.host.substr(0, info.host.find('/')); }

uint64_t random_nonce() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

std::string text_of(const RendezvousInfo& info) {
  std::string text = fmt::format("{}\nhost {}\nport {}\nnonce {}\nrun {}\n",
                                 kFirstLine,
                                 info.host,
                                 info.port,
                                 info.nonce,
                                 info.run);
  for (const std::string& address : info.addresses) text += "address " + address + "\n";
  return text;
}

std::optional<RendezvousInfo> parse_rendezvous_info(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return std::nullopt;
  RendezvousInfo info;
  while (std::getline(lines, line)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, space),
                      value = line.substr(std::min(space + 1, line.size()));
    if (key == "host") info.host = value;
    if (key == "run") info.run = value;
    if (key == "port") std::istringstream(value) >> info.port;
    if (key == "nonce") std::istringstream(value) >> info.nonce;
    if (key == "address") info.addresses.push_back(value);
  }
  if (info.port <= 0 || info.nonce == 0 || info.addresses.empty()) return std::nullopt;
  if (info.host == host_identity()) info.addresses.insert(info.addresses.begin(), "localhost");
  return info;
}

}  // namespace lockstep::collectives
