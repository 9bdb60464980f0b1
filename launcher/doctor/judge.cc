#include "launcher/doctor/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "runtime/base/text.h"

namespace lockstep::doctor {

std::vector<HostRanks> hosts_of(const RunFacts& run) {
  std::vector<HostRanks> hosts;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankFacts& rank = run.ranks[r];
    auto host = std::ranges::find_if(
        hosts, [&](const HostRanks& known) { return known.first().machine == rank.machine; });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), {rank.host, {}, {}});
    host->numbers.push_back(static_cast<int>(r));
    host->ranks.push_back(&rank);
  }
  return hosts;
}

bool carries_messages(const RdmaPort& port) {
  return port.state == "ACTIVE" && port.kind != "RoCE";
}

std::vector<double> cpu_shares(const HostRanks& host) {
  std::map<int, int> users;  // by CPU
  for (const RankFacts* rank : host.ranks)
    for (const int cpu : rank->cpus.allowed) ++users[cpu];
  std::vector<double> shares;
  for (const RankFacts* rank : host.ranks) {
    double share = 0;
    for (const int cpu : rank->cpus.allowed) share += 1.0 / users[cpu];
    shares.push_back(share);
  }
  return shares;
}

std::string differences(const std::vector<HostRanks>& hosts,
                        const std::function<std::string(const HostRanks&)>& text_of) {
  std::map<std::string, std::vector<std::string>> by_text;
  for (const HostRanks& host : hosts) by_text[text_of(host)].push_back(host.name);
  std::string all;
  for (const auto& [text, names] : by_text)
    append_item(all, fmt::format("{} on {}", text.empty() ? "none" : text, first_of(names)), "; ");
  return by_text.size() < 2 ? "" : all;
}

std::string first_of(const std::vector<std::string>& items) {
  constexpr size_t kNamed = 3;
  return named_first(items.size(), kNamed, [&](size_t i) { return items[i]; });
}

std::string bytes_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.3g} MiB", mib) : fmt::format("{:.4g} GiB", mib / 1024);
}

Findings judge(const RunFacts& run) {
  Findings findings;
  judge_start(run, findings);
  judge_cpus(run, findings);
  judge_memory(run, findings);
  judge_limits(run, findings);
  judge_disk(run, findings);
  judge_network(run, findings);
  judge_host_pairs(run, findings);
  judge_clocks(run, findings);
  judge_gpus(run, findings);
  return findings;
}

}  // namespace lockstep::doctor
