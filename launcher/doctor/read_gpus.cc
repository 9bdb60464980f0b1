#include "launcher/doctor/read_gpus.h"

#include <fmt/core.h>

#include <fstream>
#include <string>

#include "launcher/cuda/plugin.h"
#include "launcher/doctor/fields.h"
#include "launcher/processes/in_child.h"
#include "launcher/ranks/devices.h"
#include "runtime/base/time.h"

namespace lockstep::doctor {
namespace {

// GB/s of one link in one direction, by the generation of NVLink.
constexpr double kNvlinkGbytes[] = {0, 20, 25, 25, 25, 50, 100};

double should_carry(const cuda::GpuLink& link) {
  const auto generation = static_cast<size_t>(link.nvlink_generation);
  return generation < std::size(kNvlinkGbytes) ? link.nvlinks * kNvlinkGbytes[generation] : 0;
}

GpuFacts facts_of(const cuda::GpuDescription& gpu, const cuda::GpuCondition& condition) {
  return {.name = gpu.name,
          .pci_bus_id = gpu.pci_bus_id,
          .memory_bytes = static_cast<int64_t>(gpu.memory_bytes),
          .used_bytes = condition.state.used_bytes,
          .temperature_c = condition.state.temperature_c,
          .corrected_errors = condition.state.corrected_errors,
          .uncorrected_errors = condition.state.uncorrected_errors,
          .slowdown = condition.slowdown};
}

// Copies between each two GPUs, as long as there is time: after a copy that hangs, or too late,
// none is begun.
void time_copies(const cuda::Plugin& plugin,
                 const std::vector<cuda::GpuDescription>& gpus,
                 double copies_s,
                 GpusFacts& facts) {
  const double end_ms = now_ms() + copies_s * 1000, copy_s = copies_s / 2;
  std::vector<std::string> bus_ids;
  for (const cuda::GpuDescription& gpu : gpus) bus_ids.push_back(gpu.pci_bus_id);
  const std::vector<cuda::GpuLink> links = plugin.find_links(bus_ids);
  size_t at = 0;
  bool failed = false;
  for (size_t a = 0; a < gpus.size(); ++a) {
    for (size_t b = a + 1; b < gpus.size(); ++b, ++at) {
      GpuPair pair;
      pair.from = static_cast<int>(a);
      pair.to = static_cast<int>(b);
      pair.should_gbytes = should_carry(links[at]);
      pair.peer_access = links[at].peer_access != 0;
      if (!failed && now_ms() < end_ms) {
        const cuda::GpuCopy copy = plugin.time_copy(gpus[a].ordinal, gpus[b].ordinal, copy_s);
        pair.gbytes = copy.gbytes_per_s;
        pair.failure = copy.failure;
        failed = !copy.failure.empty();
      }
      facts.pairs.push_back(pair);
    }
  }
}

GpusFacts examine(double copies_s) {
  GpusFacts facts;
  const launcher::FoundGpus found = launcher::find_gpus("auto");
  facts.why_none = found.probe.why_none;
  facts.expected = found.has_driver && found.plugin != nullptr;
  if (found.plugin == nullptr || found.probe.gpus.empty()) return facts;
  const cuda::LibraryVersions versions = found.plugin->library_versions();
  facts.driver = versions.driver;
  facts.runtime = versions.runtime;
  facts.cudnn = versions.cudnn;
  facts.nccl = versions.nccl;
  for (const cuda::GpuDescription& gpu : found.probe.gpus)
    facts.gpus.push_back(facts_of(gpu, found.plugin->read_condition(gpu.pci_bus_id)));
  time_copies(*found.plugin, found.probe.gpus, copies_s, facts);
  return facts;
}

}  // namespace

GpusFacts read_gpus(double copies_s, double limit_s) {
  const launcher::StopSignals signals;
  const std::optional<std::string> answer = launcher::in_child(
      [&] { return json_of(examine(copies_s)).dump({.replace_invalid = true}); }, limit_s, signals);
  GpusFacts facts;
  if (answer) {
    facts = from_json<GpusFacts>(Json::parse(*answer));
  } else {
    facts.expected = true;
    facts.why_none = fmt::format("the driver did not answer within {:g} s", limit_s);
  }
  facts.in_machine = count_gpus_on_bus();
  return facts;
}

int count_gpus_on_bus(const std::filesystem::path& root) {
  constexpr const char* kNvidia = "0x10de";
  int gpus = 0;
  std::error_code error;
  for (const auto& device :
       std::filesystem::directory_iterator(root / "sys/bus/pci/devices", error)) {
    std::string vendor, kind;
    std::getline(std::ifstream(device.path() / "vendor"), vendor);
    std::getline(std::ifstream(device.path() / "class"), kind);
    const bool display = kind.starts_with("0x0300") || kind.starts_with("0x0302");
    gpus += vendor == kNvidia && display ? 1 : 0;
  }
  return gpus;
}

}  // namespace lockstep::doctor
