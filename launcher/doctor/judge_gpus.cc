// Judges the hosts' GPUs, what connects them, and their libraries.
#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "launcher/doctor/judge.h"
#include "runtime/base/text.h"

namespace lockstep::doctor {
namespace {

constexpr Level kWarning = Level::kWarning, kError = Level::kError;

void judge_condition(const HostRanks& host, size_t number, Findings& findings) {
  constexpr double kManyCorrected = 1000, kHot = 88, kTakenBytes = 2e9;
  const GpuFacts& gpu = host.first().gpus.gpus[number];
  const std::string name = fmt::format("GPU {} ({})", number, gpu.pci_bus_id);
  if (gpu.uncorrected_errors > 0)
    findings.add(
        kError,
        host.name,
        "gpus.ecc",
        fmt::format("{} counts {:.0f} uncorrectable memory errors since the driver started",
                    name,
                    gpu.uncorrected_errors),
        "Runs on it end, or compute wrong numbers",
        "Reset it (nvidia-smi --gpu-reset), and replace it if they come again");
  else if (gpu.corrected_errors > kManyCorrected)
    findings.add(kWarning,
                 host.name,
                 "gpus.ecc_corrected",
                 fmt::format("{} counts {:.0f} corrected memory errors since the driver started",
                             name,
                             gpu.corrected_errors),
                 "Uncorrectable ones are likely to follow",
                 "Watch it with nvidia-smi -q -d ECC, and replace it if they grow");
  if (!gpu.slowdown.empty())
    findings.add(kWarning,
                 host.name,
                 "gpus.throttled",
                 fmt::format("{} is slowed down: {}", name, gpu.slowdown),
                 "All ranks wait for it",
                 "Check its cooling and power supply");
  else if (gpu.temperature_c > kHot)
    findings.add(kWarning,
                 host.name,
                 "gpus.hot",
                 fmt::format("{} has {:.0f} degrees Celsius", name, gpu.temperature_c),
                 "It slows down under load, and all ranks wait for it",
                 "Check its cooling");
  if (gpu.used_bytes > kTakenBytes)
    findings.add(kWarning,
                 host.name,
                 "gpus.taken",
                 fmt::format("other processes hold {} of the memory of {}",
                             bytes_text(static_cast<int64_t>(gpu.used_bytes)),
                             name),
                 "Less is left for the training, and the work of others slows it down",
                 "nvidia-smi shows the processes; end those that are left over");
}

double median_rate(const std::vector<GpuPair>& pairs) {
  std::vector<double> rates;
  for (const GpuPair& pair : pairs)
    if (pair.gbytes > 0) rates.push_back(pair.gbytes);
  std::ranges::sort(rates);
  return rates.empty() ? 0 : rates[rates.size() / 2];
}

void judge_pairs(const HostRanks& host, Findings& findings) {
  constexpr double kOfLink = 0.4, kOfOthers = 0.5;
  const std::vector<GpuPair>& pairs = host.first().gpus.pairs;
  const double usual = median_rate(pairs);
  std::vector<std::string> slow, slower;
  int apart = 0, timed = 0;
  for (const GpuPair& pair : pairs) {
    const std::string text = fmt::format("{} and {}", pair.from, pair.to);
    // Cards for games never can.
    const std::string& model = host.first().gpus.gpus[static_cast<size_t>(pair.from)].name;
    apart += pair.peer_access || model.find("GeForce") != std::string::npos ? 0 : 1;
    timed += pair.gbytes > 0 ? 1 : 0;
    if (!pair.failure.empty())
      findings.add(kError,
                   host.name,
                   "gpus.copy",
                   fmt::format("GPUs {}: {}", text, pair.failure),
                   "NCCL hangs, or exchanges wrong numbers",
                   "Switch off the IOMMU and PCIe ACS in the BIOS or with the kernel's "
                   "iommu=pt; until then NCCL_P2P_DISABLE=1");
    else if (pair.gbytes > 0 && pair.gbytes < kOfLink * pair.should_gbytes)
      slow.push_back(
          fmt::format("{} {:.3g} of {:.4g} GB/s", text, pair.gbytes, pair.should_gbytes));
    else if (pair.gbytes > 0 && pair.should_gbytes == 0 && pair.gbytes < kOfOthers * usual)
      slower.push_back(fmt::format("{} {:.3g} GB/s", text, pair.gbytes));
  }
  if (!slow.empty())
    findings.add(kWarning,
                 host.name,
                 "gpus.slow_link",
                 "GPUs copy less than their NVLinks carry: " + first_of(slow),
                 "Exchanges of gradients take longer",
                 "nvidia-smi nvlink --status shows links that are down; on hosts with NVSwitch the "
                 "fabric manager must run");
  if (!slower.empty())
    findings.add(
        kWarning,
        host.name,
        "gpus.slower_than_others",
        fmt::format(
            "GPUs copy less than others, which reach {:.3g} GB/s: {}", usual, first_of(slower)),
        "All GPUs wait for them",
        "Check the slots' PCIe generation and width with nvidia-smi -q -d PCIE");
  if (apart > 0)
    findings.add(
        kWarning,
        host.name,
        "gpus.no_peer_access",
        fmt::format("{} of {} pairs of GPUs cannot read each other's memory", apart, pairs.size()),
        "NCCL copies through the host's memory, which is slower",
        "Check virtualisation and the IOMMU");
  if (timed > 0)
    findings.ok(host.name,
                "gpus.copies",
                fmt::format("copies of {}: {:.3g} GB/s", counted(timed, "pair"), usual));
}

void judge_host(const HostRanks& host, Findings& findings) {
  const GpusFacts& gpus = host.first().gpus;
  if (gpus.gpus.empty()) {
    if (gpus.expected)
      findings.add(kError,
                   host.name,
                   "gpus.unusable",
                   gpus.why_none,
                   "Training runs on the CPU, or not at all with --device cuda",
                   "Run nvidia-smi, and see launcher/gpus.md");
    else if (gpus.in_machine > 0)
      findings.add(
          kWarning,
          host.name,
          "gpus.not_visible",
          fmt::format("{} of NVIDIA in this machine, but {}",
                      counted(gpus.in_machine, "GPU"),
                      gpus.why_none),
          "Training runs on the CPU",
          "Install NVIDIA's driver; start containers with --gpus all, Slurm jobs with --gpus");
    else
      findings.ok(host.name, "gpus.none", "none: " + gpus.why_none);
    return;
  }
  for (size_t number = 0; number < gpus.gpus.size(); ++number)
    judge_condition(host, number, findings);
  // Slurm and scripts may show each rank another GPU: then the first rank does not see them all.
  const bool same_for_all = host.first().start.launcher != "srun" &&
                            std::ranges::all_of(host.ranks, [&](const RankFacts* rank) {
                              return rank->start.visible_gpus == host.first().start.visible_gpus;
                            });
  if (same_for_all && gpus.gpus.size() < host.ranks.size() && host.ranks.size() > 1)
    findings.add(
        kWarning,
        host.name,
        "gpus.few",
        fmt::format(
            "{} for {}", counted(gpus.gpus.size(), "GPU"), counted(host.ranks.size(), "rank")),
        "Ranks without a GPU end with an error, or share one with --share-gpu",
        "Start one rank for each GPU");
  if (gpus.nccl.empty() && gpus.gpus.size() > 1)
    findings.add(kError,
                 host.name,
                 "gpus.nccl",
                 "NCCL is missing",
                 "Several GPUs cannot train together",
                 "Install libnccl2, or put its folder on LD_LIBRARY_PATH");
  if (gpus.cudnn.empty())
    findings.add(kWarning,
                 host.name,
                 "gpus.cudnn",
                 "cuDNN is missing",
                 "Convolutions and attention use the program's own kernels, which may be slower",
                 "Install cudnn9, or put its folder on LD_LIBRARY_PATH");
  judge_pairs(host, findings);
  findings.ok(host.name,
              "gpus.found",
              fmt::format("{} x {}, driver {}, {}, cuDNN {}, NCCL {}",
                          gpus.gpus.size(),
                          gpus.gpus.front().name,
                          gpus.driver,
                          gpus.runtime,
                          gpus.cudnn.empty() ? "none" : gpus.cudnn,
                          gpus.nccl.empty() ? "none" : gpus.nccl));
}

}  // namespace

void judge_gpus(const RunFacts& run, Findings& findings) {
  const std::vector<HostRanks> hosts = hosts_of(run);
  for (const HostRanks& host : hosts) judge_host(host, findings);
  const bool any = std::ranges::any_of(
      hosts, [](const HostRanks& host) { return !host.first().gpus.gpus.empty(); });
  if (!any) return;
  const std::string models = differences(hosts, [](const HostRanks& host) {
    const GpusFacts& gpus = host.first().gpus;
    return gpus.gpus.empty() ? "none"
                             : fmt::format("{} x {}", gpus.gpus.size(), gpus.gpus.front().name);
  });
  if (!models.empty())
    findings.add(kWarning,
                 "",
                 "gpus.differ",
                 "the hosts' GPUs differ: " + models,
                 "Different models have different bits, which training refuses in the default "
                 "order of sums, and all wait for the slowest",
                 "Use hosts of one kind, or comm.order FAST");
  const std::string versions = differences(hosts, [](const HostRanks& host) {
    const GpusFacts& gpus = host.first().gpus;
    return fmt::format(
        "driver {}, {}, cuDNN {}, NCCL {}", gpus.driver, gpus.runtime, gpus.cudnn, gpus.nccl);
  });
  if (!versions.empty())
    findings.add(kError,
                 "",
                 "gpus.versions",
                 "the hosts' versions differ: " + versions,
                 "Training refuses ranks whose libraries may compute other bits",
                 "Install the same driver and libraries on all hosts");
}

}  // namespace lockstep::doctor
