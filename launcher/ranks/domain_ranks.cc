#include "launcher/ranks/domain_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

int threads_in(const CpuDomain& domain, CpuLimits limits, int ranks) {
  limits.domain_cores = domain.cores;
  return share_of(limits, domain.cores, 1, std::vector<int>(limits.quotas.size(), ranks)).cpus;
}

}  // namespace

std::string counted_range(int least, int most, std::string_view noun) {
  const std::string range = counted(most, noun);
  return least == most ? range : fmt::format("{} to {}", least, range);
}

DomainRanks plan_domain_ranks(const std::vector<CpuDomain>& domains, const CpuLimits& limits) {
  const auto [fewest, largest] = std::ranges::minmax(domains, {}, &CpuDomain::cores);
  const int least = fewest.cores, most = largest.cores;
  int total = 0;
  for (const CpuDomain& domain : domains) total += domain.cores;
  const int count = static_cast<int>(domains.size());
  DomainRanks plan;
  plan.reason =
      fmt::format("{} of {}", counted(count, "NUMA domain"), counted_range(least, most, "core"));
  bool one = count == 1;
  for (const CpuQuota& quota : limits.quotas) {
    if (one || std::ceil(quota.cpus) > most) continue;
    one = true;
    plan.reason += fmt::format(", and a quota of {:.3g} CPU{}", quota.cpus, plural(quota.cpus));
  }
  one |= 4 * count * least < 3 * total;
  if (one) {
    plan.ranks.push_back({{.cpus = "", .cores = total}, share_of(limits, 1).cpus});
    return plan;
  }
  for (const CpuDomain& domain : domains)
    plan.ranks.push_back({domain, threads_in(domain, limits, count)});
  return plan;
}

int bind_rank_to_domain(int local_rank, int local_ranks) {
  if (std::getenv(kRankPerDomainVariable) == nullptr) return 0;
  const DomainRanks plan = plan_domain_ranks(find_cpu_domains(), find_cpu_limits());
  if (local_ranks == 1 && plan.ranks.size() == 1) return 0;
  std::string failure;
  if (static_cast<int>(plan.ranks.size()) != local_ranks) {
    failure =
        fmt::format("{} on this host, which has {}", counted(local_ranks, "rank"), plan.reason);
  } else {
    const CpuDomain& domain = plan.ranks[static_cast<size_t>(local_rank)].domain;
    failure = bind_to_domain(domain);
    if (failure.empty()) {
      log_info("each rank is bound to a NUMA domain, this one to CPUs {}", domain.cpus);
      return domain.cores;
    }
  }
  log_warn("this rank is not bound to a NUMA domain: {}", failure);
  return 0;
}

}  // namespace lockstep::launcher
