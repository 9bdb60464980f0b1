#pragma once
// GPUs that cuDNN is told of and that need not be there, as it describes them in JSON.

#include <string>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::test {

struct GpuKind {
  const char* name;
  int sm;
  int multiprocessors, shared_bytes, l2_bytes;
};
inline constexpr GpuKind kH100 = {"NVIDIA H100 80GB HBM3", 90, 132, 232448, 52428800};
inline constexpr GpuKind kA100 = {"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040};
inline constexpr GpuKind kL40s = {"NVIDIA L40S", 89, 142, 101376, 100663296};
inline constexpr GpuKind kB200 = {"NVIDIA B200", 100, 148, 232448, 132120576};
inline constexpr GpuKind kRtx5090 = {"NVIDIA GeForce RTX 5090", 120, 170, 101376, 100663296};

// Why cuDNN cannot be asked about a GPU that is not there; empty if it can.
inline std::string why_cudnn_cannot_be_asked() {
  constexpr int kFirst = 90800;
  const std::string version = cuda::cudnn_version();
  if (version.empty()) return "cuDNN is not on this machine";
  if (std::stoi(version) >= kFirst) return "";
  return "cuDNN " + version + " takes no descriptions of GPUs, as 9.8 does";
}

inline std::string description_of(const GpuKind& gpu) {
  return std::string("{\"cudaDeviceId\": 0, \"deviceName\": \"") + gpu.name +
         "\", \"deviceVer\": " + std::to_string(gpu.sm * 10) +
         ", \"driverVer\": 13000, \"isTccDriver\": 0, \"supportCoopLaunch\": 1" +
         ", \"l2CacheSize\": " + std::to_string(gpu.l2_bytes) +
         ", \"maxCtasPerSM\": 32, \"maxRegistersPerSM\": 65536, \"regsPerBlock\": 65536" +
         ", \"maxSharedMemoryPerBlock\": 49152, \"reservedSharedMemoryPerBlock\": 1024" +
         ", \"maxSharedMemoryPerBlockOptin\": " + std::to_string(gpu.shared_bytes) +
         ", \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"warpSize\": 32" +
         ", \"memClockRateKHz\": 2619000, \"smClockRateKHz\": 1980000" +
         ", \"multiProcessorCount\": " + std::to_string(gpu.multiprocessors) +
         ", \"pciDeviceId\": 0, \"totalGlobalMem\": 84929347584" +
         ", \"maxBlockSize\": [1024, 1024, 64], \"maxGridSize\": [2147483647, 65535, 65535]}";
}

}  // namespace lockstep::test
