#include "collectives/nccl/library.h"

#include <dlfcn.h>

#include "runtime/base/error.h"

namespace lockstep::collectives {
namespace {

constexpr const char* kName = "libnccl.so.2";

void* open_library() {
  std::string reason;
  for (const char* path : {kName, LOCKSTEP_NCCL_FOUND_AT}) {
    if (*path == '\0') continue;
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
    if (reason.empty()) reason = dlerror();
  }
  throw ConfigError(
      "several ranks on GPUs need NCCL, and {} cannot be loaded ({}); install NCCL 2.19 or newer "
      "(libnccl2) or set LD_LIBRARY_PATH to its folder",
      kName,
      reason);
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw ConfigError("{} has no {}; install NCCL 2.19 or newer", kName, name);
}

NcclLibrary load() {
  void* library = open_library();
  NcclLibrary nccl{};
  find(library, "ncclGetVersion", nccl.get_version);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  find(library, "ncclCommFinalize", nccl.comm_finalize);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  find(library, "ncclGetLastError", nccl.get_last_error);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.recv);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclBroadcast", nccl.broadcast);
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace lockstep::collectives
