#include "collectives/nccl/preparation.h"

#include <cstdlib>
#include <map>
#include <vector>

#include "collectives/agree/agreement.h"
#include "collectives/nccl/check.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr int kOldestVersion = NCCL_VERSION(2, 19, 0);

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// NCCL rejects two ranks with the same host and GPU, unless their host ids differ; then they
// communicate through sockets. Variables that the user has set are not changed.
void let_ranks_share_a_gpu(int rank) {
  const std::vector<std::pair<const char*, std::string>> settings = {
      {"NCCL_HOSTID", fmt::format("rank{}", rank)},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_MAX_CTAS",
       "2"},  // kernels that wait for each other must fit on the GPU at the same time
      {"NCCL_ALGO", "Ring"},
      {"NCCL_PROTO", "Simple"}};
  for (const auto& [name, value] : settings) setenv(name, value.c_str(), 0);
}

void agree_on_version(Communicator& control, const NcclLibrary& library) {
  int version = 0;
  run_on_all(control, [&] {
    const NcclCheck check(library, control.rank());
    check.nccl(library.get_version(&version), nullptr, "get_version()", __FILE__, __LINE__);
    if (version < kOldestVersion)
      throw ConfigError("NCCL {} is too old; install {} or newer",
                        version_text(version),
                        version_text(kOldestVersion));
  });
  const std::vector<std::string> all =
      gather_texts(control, fmt::format("{} {}", version_text(version), host_name()));
  std::map<std::string, std::vector<std::string>> ranks_of;  // version -> "rank 0 on node1"
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const size_t space = all[rank].find(' ');
    ranks_of[all[rank].substr(0, space)].push_back(
        fmt::format("rank {} on {}", rank, all[rank].substr(space + 1)));
  }
  if (ranks_of.size() == 1) return;
  std::vector<std::string> parts;
  parts.reserve(ranks_of.size());
  for (const auto& [text, ranks] : ranks_of)
    parts.push_back(fmt::format("{} at {}", text, joined(ranks)));
  throw AgreedError(ExitCode::kUsage,
                    "all ranks need the same version of NCCL, but there is " + joined(parts, "; "));
}

void reject_shared_gpus(Communicator& control, const NcclLibrary& library) {
  std::string bus(32, '\0');
  run_on_all(control, [&] {
    const NcclCheck check_(library, control.rank());
    int device = 0;
    LOCKSTEP_CUDA(cudaGetDevice(&device));
    LOCKSTEP_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device));
  });
  const std::vector<std::string> all =
      gather_texts(control, host_identity() + " " + bus.substr(0, bus.find('\0')));
  std::map<std::string, size_t> first;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto [entry, is_new] = first.emplace(all[rank], rank);
    if (is_new) continue;
    throw AgreedError(
        ExitCode::kUsage,
        fmt::format(
            "ranks {} and {} on {} use the same GPU {}, of which slices (MIG) count as one; "
            "give each rank its own (CUDA_VISIBLE_DEVICES, fewer ranks a host), or "
            "--share-gpu for tests",
            entry->second,
            rank,
            all[rank].substr(0, all[rank].find('/')),
            all[rank].substr(all[rank].find(' ') + 1)));
  }
}

}  // namespace

ncclUniqueId prepare_nccl(Communicator& control,
                          const NcclOptions& options,
                          const NcclLibrary& library) {
  if (options.share_gpu) let_ranks_share_a_gpu(control.rank());
  agree_on_version(control, library);
  if (!options.share_gpu) reject_shared_gpus(control, library);
  ncclUniqueId id{};
  run_on_root(control, [&] {
    const NcclCheck check(library, control.rank());
    check.nccl(library.get_unique_id(&id), nullptr, "get_unique_id()", __FILE__, __LINE__);
  });
  control.broadcast(reinterpret_cast<std::byte*>(&id), sizeof(id), 0);
  return id;
}

}  // namespace lockstep::collectives
