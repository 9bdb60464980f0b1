#pragma once
// GPUs that cuDNN is told of and that need not be there, as it describes them in JSON.

#include <string>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/cudnn/cudnn_described_gpu.h"

namespace lockstep::test {

struct GpuKind {
  const char* short_name;
  const char* name;
  int sm;
  int multiprocessors, shared_bytes, l2_bytes;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  double memory_gib;
};
inline constexpr int kMiB = 1 << 20;
inline constexpr GpuKind kH100 = {
    "H100", "NVIDIA H100 80GB HBM3", 90, 132, 232448, 50 * kMiB, 2048, 32, 79.1};
inline constexpr GpuKind kH200 = {
    "H200", "NVIDIA H200", 90, 132, 232448, 50 * kMiB, 2048, 32, 139.8};
inline constexpr GpuKind kA100 = {
    "A100", "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 40 * kMiB, 2048, 32, 79.1};
inline constexpr GpuKind kL40s = {
    "L40S", "NVIDIA L40S", 89, 142, 101376, 96 * kMiB, 1536, 24, 44.4};
inline constexpr GpuKind kRtx4090 = {
    "RTX 4090", "NVIDIA GeForce RTX 4090", 89, 128, 101376, 72 * kMiB, 1536, 24, 23.5};
inline constexpr GpuKind kB200 = {
    "B200", "NVIDIA B200", 100, 148, 232448, 126 * kMiB, 2048, 32, 178.4};
inline constexpr GpuKind kRtx5090 = {
    "RTX 5090", "NVIDIA GeForce RTX 5090", 120, 170, 101376, 96 * kMiB, 1536, 24, 31.4};
inline constexpr GpuKind kGpus[] = {kH100, kH200, kA100, kL40s, kRtx4090, kB200, kRtx5090};

// Why cuDNN cannot be asked about a GPU that is not there; empty if it can.
inline std::string why_cudnn_cannot_be_asked() {
  constexpr int kFirst = 90800;
  const std::string version = cuda::cudnn_version();
  if (version.empty()) return "cuDNN is not on this machine";
  if (std::stoi(version) >= kFirst) return "";
  return "cuDNN " + version + " takes no descriptions of GPUs, as 9.8 does";
}

inline cuda::DescribedGpu description_of(const GpuKind& gpu) {
  const auto memory = static_cast<int64_t>(gpu.memory_gib * 0x1p30);
  return {gpu.sm,
          std::string("{\"cudaDeviceId\": 0, \"deviceName\": \"") + gpu.name +
              "\", \"deviceVer\": " + std::to_string(gpu.sm * 10) +
              ", \"driverVer\": 13000, \"isTccDriver\": 0, \"supportCoopLaunch\": 1" +
              ", \"l2CacheSize\": " + std::to_string(gpu.l2_bytes) +
              ", \"maxCtasPerSM\": " + std::to_string(gpu.blocks_per_multiprocessor) +
              ", \"maxRegistersPerSM\": 65536, \"regsPerBlock\": 65536" +
              ", \"maxSharedMemoryPerBlock\": 49152, \"reservedSharedMemoryPerBlock\": 1024" +
              ", \"maxSharedMemoryPerBlockOptin\": " + std::to_string(gpu.shared_bytes) +
              ", \"maxThreadsPerSM\": " + std::to_string(gpu.threads_per_multiprocessor) +
              ", \"maxThreadsPerBlock\": 1024, \"warpSize\": 32" +
              ", \"memClockRateKHz\": 2619000, \"smClockRateKHz\": 1980000" +
              ", \"multiProcessorCount\": " + std::to_string(gpu.multiprocessors) +
              ", \"pciDeviceId\": 0, \"totalGlobalMem\": " + std::to_string(memory) +
              ", \"maxBlockSize\": [1024, 1024, 64], \"maxGridSize\": [2147483647, 65535, 65535]}"};
}

}  // namespace lockstep::test
