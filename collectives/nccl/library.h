#pragma once
// Loads libnccl when it is first needed, so that a program with GPU support also starts on machines
// without NCCL.

#include <nccl.h>

namespace lockstep::collectives {

// The functions of NCCL that are used; a test may supply its own.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommFinalize) comm_finalize;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
};

// Returns libnccl.so.2, searched in the loader's folders and then where the build found it. It
// stays loaded. Throws ConfigError if it is missing or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace lockstep::collectives
