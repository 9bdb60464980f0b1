#include "launcher/doctor/read_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>

#include "collectives/tcp/rendezvous_info.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

std::string line_in(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

int64_t number_in(const fs::path& path) {
  return std::max<int64_t>(0, parse_as<int64_t>(trimmed(line_in(path))).value_or(0));
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

bool is_in(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

// By ARP hardware types (linux/if_arp.h) and what the kernel adds for each kind.
std::string kind_of(const fs::path& folder) {
  constexpr int64_t kLoopback = 772, kInfiniband = 32;
  const int64_t type = number_in(folder / "type");
  if (type == kLoopback) return "loopback";
  if (type == kInfiniband) return "infiniband";
  if (is_in(folder, "bridge")) return "bridge";
  if (is_in(folder, "wireless")) return "wireless";
  return is_in(folder, "device") ? "ethernet" : "virtual";
}

InterfaceFacts interface_at(const fs::path& folder) {
  InterfaceFacts facts;
  facts.name = folder.filename().string();
  facts.kind = kind_of(folder);
  facts.speed_mbit = number_in(folder / "speed");
  facts.mtu = number_in(folder / "mtu");
  for (const char* way : {"rx", "tx"}) {
    const std::string begin = std::string("statistics/") + way;
    facts.packets += number_in(folder / (begin + "_packets"));
    facts.errors += number_in(folder / (begin + "_errors"));
  }
  return facts;
}

// "4: ACTIVE" is ACTIVE, "100 Gb/sec (4X EDR)" is 100.
std::vector<RdmaPort> ports_of(const fs::path& device) {
  std::vector<RdmaPort> ports;
  std::error_code error;
  const bool efa = fs::read_symlink(device / "device/driver", error).filename() == "efa";
  for (const fs::path& folder : entries_of(device / "ports")) {
    RdmaPort port;
    port.device = device.filename().string();
    port.port = parse_as<int>(folder.filename().string()).value_or(1);
    const std::string state = line_in(folder / "state");
    port.state = std::string(
        trimmed(std::string_view(state).substr(std::min(state.find(':') + 1, state.size()))));
    port.kind = efa ? "EFA" : line_in(folder / "link_layer") == "Ethernet" ? "RoCE" : "InfiniBand";
    port.gbit = parse_as<double>(words_of(line_in(folder / "rate") + " 0").front()).value_or(0);
    ports.push_back(port);
  }
  return ports;
}

// The addresses of each interface that is up.
std::map<std::string, std::vector<std::string>> addresses_here() {
  std::map<std::string, std::vector<std::string>> addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> interfaces(found, ::freeifaddrs);
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0 || entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string address = collectives::numeric_address(*entry->ifa_addr, length);
    if (!address.empty() && address.find('%') == std::string::npos)
      addresses[entry->ifa_name].push_back(address);
  }
  return addresses;
}

std::string why_first(const std::string& address, const std::string& networks) {
  if (!networks.empty()) return "OMPI_MCA_btl_tcp_if_include is " + networks;
  const std::vector<std::string> named = collectives::addresses_of_name(host_name());
  return std::ranges::find(named, address) != named.end()
             ? "the host's name resolves to it"
             : "it is the first that is up, and the host's name resolves to none";
}

}  // namespace

NetworkFacts read_interfaces(const fs::path& root) {
  NetworkFacts facts;
  for (const fs::path& folder : entries_of(root / "sys/class/net")) {
    const std::string state = line_in(folder / "operstate");  // "unknown" is normal for loopback
    if (state == "up" || state == "unknown") facts.interfaces.push_back(interface_at(folder));
  }
  const std::vector<std::string> ports =
      words_of(line_in(root / "proc/sys/net/ipv4/ip_local_port_range"));
  if (ports.size() == 2) {
    facts.first_port = parse_as<int>(ports[0]).value_or(0);
    facts.last_port = parse_as<int>(ports[1]).value_or(0);
  }
  for (const fs::path& device : entries_of(root / "sys/class/infiniband")) {
    const std::vector<RdmaPort> ports = ports_of(device);
    facts.rdma.insert(facts.rdma.end(), ports.begin(), ports.end());
  }
  return facts;
}

NetworkFacts read_network(const std::string& networks) {
  NetworkFacts facts = read_interfaces();
  auto addresses = addresses_here();
  for (InterfaceFacts& interface : facts.interfaces)
    interface.addresses = addresses[interface.name];
  const std::vector<std::string> tried =
      collectives::local_rendezvous_info(0, 1, "", networks).addresses;
  for (const InterfaceFacts& interface : facts.interfaces) {
    if (tried.empty() ||
        std::ranges::find(interface.addresses, tried.front()) == interface.addresses.end())
      continue;
    facts.used = interface.name;
    facts.used_address = tried.front();
    facts.used_why = why_first(tried.front(), networks);
  }
  return facts;
}

}  // namespace lockstep::doctor
