// Catches: memory without CPUs taken for a NUMA domain, hyperthreads counted as cores, a rank on
// CPUs that it may not use or that are another domain's, several ranks if one is better.
#include "launcher/ranks/cpu_domains.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <string>
#include <thread>
#include <vector>

#include "launcher/ranks/domain_ranks.h"
#include "runtime/base/cpus.h"

namespace lockstep::launcher {
namespace {

// "cpus: cores" of each domain.
std::vector<std::string> domains_of(const std::string& machine, const std::string& allowed) {
  std::vector<std::string> domains;
  for (const CpuDomain& domain : find_cpu_domains(machine, allowed))
    domains.push_back(fmt::format("{}: {}", domain.cpus, domain.cores));
  return domains;
}
using Domains = std::vector<std::string>;

CpuLimits limits_of(int cpus, const std::vector<CpuQuota>& quotas) {
  CpuLimits limits;
  limits.cpus.resize(static_cast<size_t>(cpus));
  limits.quotas = quotas;
  return limits;
}

DomainRanks ranks_on(const std::string& machine,
                     const std::string& allowed,
                     const CpuLimits& limits = {}) {
  return plan_domain_ranks(find_cpu_domains(machine, allowed), limits);
}

TEST(CpuDomains, CoresCountOnce) {
  EXPECT_EQ(domains_of("pack:2 numa:2 core:16 pu:2", "0-127"),
            Domains({"0-31: 16", "32-63: 16", "64-95: 16", "96-127: 16"}));
  EXPECT_EQ(domains_of("numa:4 core:8 pu:1", "0-31"),
            Domains({"0-7: 8", "8-15: 8", "16-23: 8", "24-31: 8"}));
  EXPECT_EQ(domains_of("pack:1 core:2 pu:1", "0-1"), Domains({"0-1: 2"}));
  // Linux numbers the second hyperthreads after all cores.
  EXPECT_EQ(domains_of("numa:2 core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)", "0-15"),
            Domains({"0-3,8-11: 4", "4-7,12-15: 4"}));
}

TEST(CpuDomains, OnlyAllowedCpus) {
  EXPECT_EQ(domains_of("pack:2 numa:2 core:16 pu:2", "0-15,40-41"),
            Domains({"0-15: 8", "40-41: 1"}));
  EXPECT_EQ(domains_of("numa:2 core:4 pu:2", "0,2,4,6"), Domains({"0,2,4,6: 4"}))
      << "one hyperthread of each core";
}

TEST(CpuDomains, MemoryWithoutCpusIsNone) {
  EXPECT_EQ(domains_of("pack:2 [numa] [numa] core:4 pu:1", "0-7"), Domains({"0-3: 4", "4-7: 4"}))
      << "HBM beside each package's memory";
  EXPECT_EQ(domains_of("[numa] pack:2 [numa] core:4 pu:1", "0-7"), Domains({"0-3: 4", "4-7: 4"}))
      << "CXL memory of the whole machine";
  EXPECT_EQ(domains_of("pack:2 [numa] group:2 [numa] core:4 pu:1", "0-15"),
            Domains({"0-3: 4", "4-7: 4", "8-11: 4", "12-15: 4"}))
      << "CXL memory of a package of two domains";
  EXPECT_EQ(domains_of("[numa] [numa] core:4 pu:1", "0-3"), Domains({"0-3: 4"}));
}

TEST(CpuDomains, OneIfTheMachineIsUnknown) {
  EXPECT_EQ(domains_of("nonsense", "0-3"), Domains({"0-3: 4"}));
  EXPECT_EQ(domains_of("numa:2 core:2 pu:1", "2-5"), Domains({"2-5: 2"})) << "CPUs in no domain";
}

TEST(DomainRanks, OneForEachDomain) {
  const DomainRanks plan = ranks_on("pack:2 numa:2 core:16 pu:2", "0-127");
  ASSERT_EQ(plan.ranks.size(), 4);
  EXPECT_EQ(plan.ranks[3].domain.cpus, "96-127");
  for (const DomainRanks::Rank& rank : plan.ranks) EXPECT_EQ(rank.threads, 16);
  EXPECT_EQ(plan.reason, "4 NUMA domains of 16 cores");
}

TEST(DomainRanks, OneForASingleDomain) {
  const DomainRanks plan = ranks_on("pack:1 core:2 pu:1", "0-1", limits_of(2, {}));
  ASSERT_EQ(plan.ranks.size(), 1);
  EXPECT_EQ(plan.ranks[0].domain.cpus, "") << "not bound";
  EXPECT_EQ(plan.ranks[0].threads, 2);
  EXPECT_EQ(plan.reason, "1 NUMA domain of 2 cores");
  EXPECT_EQ(ranks_on("numa:4 core:8 pu:1", "8-15").ranks.size(), 1) << "taskset of one domain";
}

TEST(DomainRanks, QuotasAreShared) {
  const CpuLimits large = limits_of(64, {{20, "a"}, {100, "b"}});
  const DomainRanks two = ranks_on("numa:2 core:16 pu:2", "0-63", large);
  ASSERT_EQ(two.ranks.size(), 2);
  EXPECT_EQ(two.ranks[0].threads, 10);
  const CpuLimits small = limits_of(64, {{15.5, "a"}});
  const DomainRanks one = ranks_on("numa:2 core:16 pu:2", "0-63", small);
  ASSERT_EQ(one.ranks.size(), 1) << "a domain has as many CPUs as the quota";
  EXPECT_EQ(one.ranks[0].threads, 16);
  EXPECT_EQ(one.reason, "2 NUMA domains of 16 cores, and a quota of 15.5 CPUs");
}

TEST(DomainRanks, NumbersForOneRankStay) {
  CpuLimits limits;
  limits.omp_num_threads = 3;
  EXPECT_EQ(ranks_on("numa:2 core:4 pu:1", "0-7", limits).ranks[0].threads, 3);
}

TEST(DomainRanks, UnevenDomains) {
  const DomainRanks near = ranks_on("numa:2 core:16 pu:1", "0-27");
  ASSERT_EQ(near.ranks.size(), 2) << "24 of 28 cores at work";
  EXPECT_EQ(near.ranks[0].threads, 16);
  EXPECT_EQ(near.ranks[1].threads, 12);
  EXPECT_EQ(near.reason, "2 NUMA domains of 12 to 16 cores");
  EXPECT_EQ(ranks_on("numa:2 core:16 pu:1", "0-17").ranks.size(), 1) << "4 of 18";
}

TEST(DomainRanks, OtherLaunchersBindingsStay) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  unsetenv(kRankPerDomainVariable);
  EXPECT_EQ(bind_rank_to_domain(0, 2), 0);
  setenv(kRankPerDomainVariable, "1", 1);
  EXPECT_EQ(bind_rank_to_domain(0, 1000), 0) << "no host has so many domains";
  unsetenv(kRankPerDomainVariable);
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(DomainRanks, BindsAllThreads) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  const auto list = [](const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
  };
  ASSERT_EQ(bind_to_domain({std::to_string(cpus[1]), 1}), "");
  EXPECT_EQ(allowed_cpus(), std::vector<int>({cpus[1]}));
  std::thread([&] { EXPECT_EQ(allowed_cpus(), std::vector<int>({cpus[1]})); }).join();
  ASSERT_EQ(bind_to_domain({list(cpus), 1}), "");
  EXPECT_EQ(allowed_cpus(), cpus);
}

}  // namespace
}  // namespace lockstep::launcher
