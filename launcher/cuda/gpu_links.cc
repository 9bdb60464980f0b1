#include "launcher/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "launcher/cuda/nvml.h"
#include "runtime/base/log.h"

namespace lockstep::cuda {
namespace {

constexpr int kLimitS = 5;

// nvmlNvlinkVersion_t by its values: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0.
constexpr int kNvlinkGenerations[] = {0, 1, 2, 2, 3, 3, 4, 5, 6};

// The active NVLinks of a GPU, by what is at their other ends.
struct Ends {
  int to_switch = 0;
  std::vector<std::string> bus_ids;  // of GPUs
  int generation = 0;
};

// NVML writes eight digits of the domain, CUDA four.
bool is_same_bus(const std::string& nvml, const std::string& cuda) {
  return nvml.size() >= cuda.size() &&
         ::strcasecmp(nvml.c_str() + nvml.size() - cuda.size(), cuda.c_str()) == 0;
}

// Old drivers do not report what a link's other end is. It may be a switch if it is none of `gpus`.
Ends ends_of(const Nvml& nvml, Nvml::Device device, const std::vector<std::string>& gpus) {
  Ends ends;
  for (unsigned link = 0; link < Nvml::kMaxLinks; ++link) {
    int active = 0, type = Nvml::kGpuAtEnd;
    if (nvml.link_state(device, link, &active) != Nvml::kSuccess || active == 0) continue;
    unsigned version = 0;
    if (nvml.link_version(device, link, &version) == Nvml::kSuccess &&
        version < std::size(kNvlinkGenerations))
      ends.generation = std::max(ends.generation, kNvlinkGenerations[version]);
    const bool known = nvml.link_remote_type(device, link, &type) == Nvml::kSuccess;
    Nvml::PciInfo remote{};
    const bool has_address = nvml.link_remote_pci(device, link, &remote) == Nvml::kSuccess;
    const bool other = std::ranges::none_of(
        gpus, [&](const auto& gpu) { return is_same_bus(remote.bus_id, gpu); });
    if (known ? type == Nvml::kSwitchAtEnd : other) {
      ++ends.to_switch;
    } else if (has_address) {
      ends.bus_ids.emplace_back(remote.bus_id);
    }
  }
  return ends;
}

std::optional<bool> peers(const Nvml& nvml, Nvml::Device a, Nvml::Device b, int capability) {
  int status = 0;
  if (nvml.peer_status(a, b, capability, &status) != Nvml::kSuccess) return std::nullopt;
  return status == 0;
}

struct Gpu {
  std::string bus_id;
  Nvml::Device device;
  Ends ends;
};

GpuLink link_between(const Nvml& nvml, const Gpu& a, const Gpu& b) {
  GpuLink link;
  link.nvlinks = static_cast<int>(std::ranges::count_if(
      a.ends.bus_ids, [&](const std::string& end) { return is_same_bus(end, b.bus_id); }));
  if (link.nvlinks == 0 && peers(nvml, a.device, b.device, Nvml::kNvlinkPeer).value_or(false))
    link.nvlinks = std::min(a.ends.to_switch, b.ends.to_switch);
  if (link.nvlinks > 0) link.nvlink_generation = std::min(a.ends.generation, b.ends.generation);
  int level = 0;
  if (nvml.common_ancestor(a.device, b.device, &level) == Nvml::kSuccess)
    link.pcie = static_cast<GpuLink::Pcie>(level);
  const auto reads = peers(nvml, a.device, b.device, Nvml::kReadsPeer);
  if (reads) link.peer_access = *reads ? 1 : 0;
  return link;
}

// Empty if NVML is missing.
std::vector<GpuLink> ask_nvml(const std::vector<std::string>& bus_ids) {
  std::string why_not;
  const Nvml* const nvml = Nvml::load(why_not);
  if (nvml == nullptr) return {};
  std::vector<Gpu> gpus;
  for (const std::string& bus_id : bus_ids) {
    const auto device = nvml->find(bus_id);
    if (!device) return {};
    gpus.push_back({bus_id, *device, ends_of(*nvml, *device, bus_ids)});
  }
  std::vector<GpuLink> links;
  for (size_t a = 0; a < gpus.size(); ++a)
    for (size_t b = a + 1; b < gpus.size(); ++b)
      links.push_back(link_between(*nvml, gpus[a], gpus[b]));
  return links;
}

// Waits no longer than kLimitS for a driver that hangs: the thread is then left behind.
std::vector<GpuLink> ask_nvml_for_a_while(const std::vector<std::string>& bus_ids) {
  std::promise<std::vector<GpuLink>> promise;
  std::future<std::vector<GpuLink>> answer = promise.get_future();
  std::thread([promise = std::move(promise), bus_ids]() mutable {
    promise.set_value(ask_nvml(bus_ids));
  }).detach();
  if (answer.wait_for(std::chrono::seconds(kLimitS)) == std::future_status::ready)
    return answer.get();
  log_warn("NVIDIA's driver did not report what connects the GPUs within {} s", kLimitS);
  return std::vector<GpuLink>(bus_ids.size() * (bus_ids.size() - 1) / 2);
}

GpuLink ask_cuda(const std::string& a, const std::string& b) {
  GpuLink link;
  int first = 0, second = 0, reads = 0;
  if (cudaDeviceGetByPCIBusId(&first, a.c_str()) == cudaSuccess &&
      cudaDeviceGetByPCIBusId(&second, b.c_str()) == cudaSuccess &&
      cudaDeviceCanAccessPeer(&reads, first, second) == cudaSuccess)
    link.peer_access = reads;
  cudaGetLastError();
  return link;
}

}  // namespace

std::vector<GpuLink> find_links(const std::vector<std::string>& pci_bus_ids) {
  std::vector<GpuLink> links = ask_nvml_for_a_while(pci_bus_ids);
  if (!links.empty()) return links;
  for (size_t a = 0; a < pci_bus_ids.size(); ++a)
    for (size_t b = a + 1; b < pci_bus_ids.size(); ++b)
      links.push_back(ask_cuda(pci_bus_ids[a], pci_bus_ids[b]));
  return links;
}

}  // namespace lockstep::cuda
