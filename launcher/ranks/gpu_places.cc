#include "launcher/ranks/gpu_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

using cuda::GpuLink;

std::string name_of(const std::string& host) { return host.substr(0, host.find('/')); }

// "0-3, 6": consecutive numbers become ranges.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    append_item(text, std::to_string(numbers[first]));
    if (last > first) text += fmt::format("-{}", numbers[last]);
  }
  return text;
}

std::string names_of(const std::vector<std::string>& gpus) {
  std::vector<int> numbers;
  for (const std::string& name : gpus) {
    if (name.find(':') != std::string::npos) return joined(gpus);
    numbers.push_back(std::stoi(name));
  }
  return ranges(numbers);
}

const char* words_for(GpuLink::Pcie pcie) {
  switch (pcie) {
    case GpuLink::Pcie::kBoard: return "one board";
    case GpuLink::Pcie::kSwitch: return "PCIe through a switch";
    case GpuLink::Pcie::kSwitches: return "PCIe through several switches";
    case GpuLink::Pcie::kHostBridge: return "PCIe through one host bridge";
    case GpuLink::Pcie::kSocket: return "PCIe through host bridges of one socket";
    case GpuLink::Pcie::kSystem: return "PCIe across sockets";
    case GpuLink::Pcie::kUnknown: break;
  }
  return nullptr;
}

std::string words_for(const GpuLink& link) {
  if (link.nvlinks > 0)
    return fmt::format("NVLink{}, {} each",
                       link.nvlink_generation > 0 ? fmt::format(" {}", link.nvlink_generation) : "",
                       counted(link.nvlinks, "link"));
  const char* const pcie = words_for(link.pcie);
  if (pcie == nullptr)
    return link.peer_access < 0    ? "unknown"
           : link.peer_access == 1 ? "peer access"
                                   : "no peer access";
  return pcie + std::string(link.peer_access == 0 ? ", without peer access" : "");
}

// The order of links from near to far; equal for those that the words do not distinguish.
auto distance(const GpuLink& link) {
  const bool nvlink = link.nvlinks > 0;
  const int pcie = link.pcie == GpuLink::Pcie::kUnknown ? 100 : static_cast<int>(link.pcie);
  return std::tuple(!nvlink, -link.nvlinks, nvlink ? 0 : pcie, nvlink ? 0 : -link.peer_access);
}

// Pairs of GPUs by the distance of what connects them.
class Links {
 public:
  Links(const std::vector<std::string>& names, std::span<const GpuLink> links)
      : names_(names), links_(links) {}

  std::string text() const {
    std::vector<GpuLink> kinds(links_.begin(), links_.end());
    std::ranges::sort(kinds, {}, distance);
    kinds.erase(std::ranges::unique(kinds, {}, distance).begin(), kinds.end());
    std::string text;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const bool rest = i > 0 && i + 1 == kinds.size();
      text += fmt::format("{}{}: {}",
                          i > 0 ? "; " : "",
                          rest ? "all others" : "GPUs " + gpus_of(kinds[i]),
                          words_for(kinds[i]));
    }
    return text;
  }

 private:
  const GpuLink& link(size_t a, size_t b) const {
    const size_t n = names_.size(), low = std::min(a, b), high = std::max(a, b);
    return links_[low * (2 * n - low - 1) / 2 + high - low - 1];
  }
  bool within(size_t a, size_t b, const GpuLink& kind) const {
    return distance(link(a, b)) <= distance(kind);
  }

  // The groups within which all GPUs are at most that far from each other and some are that far;
  // if they do not fall into such groups, the pairs.
  std::string gpus_of(const GpuLink& kind) const {
    std::vector<std::string> groups, pairs;
    bool grouped = true;
    std::vector<bool> seen(names_.size());
    for (size_t a = 0; a < names_.size(); ++a) {
      std::vector<std::string> near = {names_[a]};
      bool exact = false;
      for (size_t b = 0; b < names_.size(); ++b) {
        if (b == a || !within(a, b, kind)) continue;
        if (b > a) near.push_back(names_[b]);
        const bool same = distance(link(a, b)) == distance(kind);
        exact |= same;
        if (same && b > a) pairs.push_back(names_[a] + " and " + names_[b]);
        for (size_t c = 0; c < names_.size(); ++c)
          grouped &= c == a || c == b || within(a, c, kind) == within(b, c, kind);
        if (b > a) seen[b] = true;
      }
      if (!seen[a] && exact) groups.push_back(names_of(near));
    }
    return fmt::format("{}", fmt::join(grouped ? groups : pairs, ", "));
  }

  const std::vector<std::string>& names_;
  std::span<const GpuLink> links_;
};

// The ranks of a host that share a binding.
struct Group {
  std::vector<int> ranks;
  std::vector<std::string> gpus;
  std::string binding;
};

struct Host {
  std::string name;
  std::vector<Group> groups;
  std::string links;
  size_t alike = 1;  // hosts with the same, this one included

  // What must be equal for two hosts to be alike.
  auto facts() const {
    std::vector<std::tuple<size_t, std::vector<std::string>, std::string>> facts;
    for (const Group& group : groups)
      facts.emplace_back(group.ranks.size(), group.gpus, group.binding);
    return std::pair(facts, links);
  }
};

std::vector<Host> hosts_of(std::span<const GpuPlace> ranks) {
  std::vector<Host> hosts;
  std::map<std::string, size_t> known;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const GpuPlace& place = ranks[r];
    const auto [found, is_new] = known.try_emplace(place.host, hosts.size());
    if (is_new) hosts.push_back({name_of(place.host), {}, {}});
    Host& host = hosts[found->second];
    if (!place.links.empty()) host.links = place.links;
    auto group = std::ranges::find(host.groups, place.binding, &Group::binding);
    if (group == host.groups.end()) group = host.groups.insert(group, {{}, {}, place.binding});
    group->ranks.push_back(static_cast<int>(r));
    const std::vector<std::string> gpus = gpus_of_host(ranks, place.host);
    const auto index = std::ranges::find(gpus, place.pci_bus_id) - gpus.begin();
    const std::string name = names_of_gpus(ranks, place.host)[static_cast<size_t>(index)];
    if (std::ranges::find(group->gpus, name) == group->gpus.end()) group->gpus.push_back(name);
  }
  std::vector<Host> different;
  for (Host& host : hosts) {
    const auto same = std::ranges::find_if(
        different, [&](const Host& other) { return other.facts() == host.facts(); });
    if (same == different.end()) {
      different.push_back(std::move(host));
    } else {
      ++same->alike;
    }
  }
  return different;
}

}  // namespace

std::vector<std::string> gpus_of_host(std::span<const GpuPlace> ranks, const std::string& host) {
  std::vector<std::string> gpus;
  for (const GpuPlace& place : ranks) {
    if (place.host == host && std::ranges::find(gpus, place.pci_bus_id) == gpus.end())
      gpus.push_back(place.pci_bus_id);
  }
  return gpus;
}

std::vector<std::string> names_of_gpus(std::span<const GpuPlace> ranks, const std::string& host) {
  const std::vector<std::string> gpus = gpus_of_host(ranks, host);
  std::vector<std::string> names;
  std::set<int> ordinals;
  for (const std::string& gpu : gpus) {
    const auto place = std::ranges::find_if(
        ranks, [&](const GpuPlace& each) { return each.host == host && each.pci_bus_id == gpu; });
    names.push_back(std::to_string(place->ordinal));
    ordinals.insert(place->ordinal);
  }
  return ordinals.size() == gpus.size() ? names : gpus;
}

std::string describe_links(const std::vector<std::string>& names, std::span<const GpuLink> links) {
  LOCKSTEP_CHECK(links.size() == names.size() * (names.size() - (names.empty() ? 0 : 1)) / 2);
  return links.empty() ? "" : Links(names, links).text();
}

std::vector<std::string> describe_places(std::span<const GpuPlace> ranks) {
  std::vector<std::string> lines;
  for (const Host& host : hosts_of(ranks)) {
    const std::string others =
        host.alike > 1
            ? fmt::format(
                  " ({} other {} alike)", host.alike - 1, host.alike > 2 ? "hosts are" : "host is")
            : "";
    for (const Group& group : host.groups)
      lines.push_back(fmt::format("{}, rank{} {} on GPU{} {}: {}{}",
                                  host.name,
                                  plural(group.ranks.size()),
                                  ranges(group.ranks),
                                  plural(group.gpus.size()),
                                  names_of(group.gpus),
                                  group.binding,
                                  others));
    if (!host.links.empty())
      lines.push_back(fmt::format("{}, between {}{}", host.name, host.links, others));
  }
  return lines;
}

}  // namespace lockstep::launcher
