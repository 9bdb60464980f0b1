#pragma once
// libnccl, loaded when it is first needed: a program that can use GPUs also starts where there is
// no NCCL.

#include <nccl.h>

namespace lockstep {

// The functions of NCCL that are used, as the library has them, or as a test does.
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

// libnccl.so.2, from the loader's folders or else from where the build found it; stays loaded.
// Throws ConfigError where it is missing or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace lockstep
