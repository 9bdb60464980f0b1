// What `lockstep doctor` asks of GPUs: versions, state, and copies between them. It asks from a
// process that it can abandon, so that nothing here needs a thread of its own.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <vector>

#include "launcher/cuda/gpu.h"
#include "launcher/cuda/gpu_readings.h"
#include "launcher/cuda/slices.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kCopiedBytes = size_t{64} << 20, kCheckedBytes = size_t{1} << 20;
constexpr int kPattern = 0x5a;

// Memory of one GPU, freed at the end if nothing hangs.
class Memory {
 public:
  explicit Memory(int gpu) : gpu_(gpu) {
    LOCKSTEP_CUDA(cudaSetDevice(gpu));
    LOCKSTEP_CUDA(cudaMalloc(&data_, kCopiedBytes));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (!abandoned_ && cudaSetDevice(gpu_) == cudaSuccess) cudaFree(data_);
  }
  char* data() const { return static_cast<char*>(data_); }
  // Freeing it would wait for work that does not end.
  void abandon() { abandoned_ = true; }

 private:
  int gpu_;
  void* data_ = nullptr;
  bool abandoned_ = false;
};

// Returns false if the stream's work does not end by `end_ms`.
bool finishes(cudaStream_t stream, double end_ms) {
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady && now_ms() < end_ms) sched_yield();
  if (state == cudaErrorNotReady) return false;
  check(state, "a copy between GPUs");
  return true;
}

void let_read(int reader, int other) {
  int can = 0;
  LOCKSTEP_CUDA(cudaSetDevice(reader));
  LOCKSTEP_CUDA(cudaDeviceCanAccessPeer(&can, reader, other));
  if (can == 0) return;
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  cudaGetLastError();
  if (error != cudaErrorPeerAccessAlreadyEnabled) check(error, "cudaDeviceEnablePeerAccess()");
}

// Whether the first and the last bytes are the pattern.
bool has_arrived(const Memory& memory, cudaStream_t stream, double end_ms) {
  std::vector<char> bytes(2 * kCheckedBytes);
  LOCKSTEP_CUDA(
      cudaMemcpyAsync(bytes.data(), memory.data(), kCheckedBytes, cudaMemcpyDeviceToHost, stream));
  LOCKSTEP_CUDA(cudaMemcpyAsync(bytes.data() + kCheckedBytes,
                                memory.data() + kCopiedBytes - kCheckedBytes,
                                kCheckedBytes,
                                cudaMemcpyDeviceToHost,
                                stream));
  return finishes(stream, end_ms) &&
         std::ranges::all_of(bytes, [](char byte) { return byte == kPattern; });
}

std::string versions_of_nvml() {
  std::string why_not;
  std::array<char, 96> text{};
  const Nvml* const nvml = Nvml::load(why_not);
  const bool known =
      nvml != nullptr &&
      nvml->driver_version(text.data(), static_cast<unsigned>(text.size())) == Nvml::kSuccess;
  return known ? text.data() : "";
}

}  // namespace

LibraryVersions library_versions() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  LibraryVersions versions;
  const std::string number = versions_of_nvml();
  versions.driver =
      fmt::format("{}{}CUDA {}", number, number.empty() ? "" : " for ", version_text(driver));
  versions.runtime =
      fmt::format("CUDA {}, cuBLASLt {}", version_text(runtime), cublasLtGetVersion());
  versions.cudnn = cudnn_version();
  versions.nccl = nccl_version();
  return versions;
}

GpuCondition read_condition(const std::string& pci_bus_id) {
  GpuCondition condition;
  std::string why_not;
  const Nvml* const nvml = Nvml::load(why_not);
  const auto device = nvml == nullptr ? std::nullopt : nvml->find(pci_bus_id);
  if (!device) return condition;
  condition.state = GpuReadings(*nvml, *device).read();
  condition.slowdown = words_for_limits(condition.state.limits & kAlarming);
  return condition;
}

GpuCopy time_copy(int from, int to, double limit_s) {
  constexpr int kTimes = 3;
  GpuCopy copy;
  const double end_ms = now_ms() + limit_s * 1000;
  try {
    Memory source(from), target(to);
    let_read(to, from);
    cudaStream_t stream = nullptr;
    LOCKSTEP_CUDA(cudaSetDevice(from));
    LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    LOCKSTEP_CUDA(cudaMemsetAsync(source.data(), kPattern, kCopiedBytes, stream));
    bool ends = finishes(stream, end_ms);
    double best_ms = 0;
    for (int time = 0; ends && time < kTimes; ++time) {
      const double begin_ms = now_ms();
      LOCKSTEP_CUDA(
          cudaMemcpyPeerAsync(target.data(), to, source.data(), from, kCopiedBytes, stream));
      ends = finishes(stream, end_ms);
      if (time == 0 || now_ms() - begin_ms < best_ms) best_ms = now_ms() - begin_ms;
    }
    if (!ends) {
      source.abandon();
      target.abandon();
      copy.failure = fmt::format("the copy does not end within {:g} s", limit_s);
      return copy;
    }
    copy.gbytes_per_s = static_cast<double>(kCopiedBytes) / std::max(best_ms, 1e-3) / 1e6;
    if (!has_arrived(target, stream, end_ms))
      copy.failure = "the copy has other bytes than its source";
    LOCKSTEP_CUDA(cudaStreamDestroy(stream));
  } catch (const Error& error) {
    copy.failure = error.what();
  }
  return copy;
}

}  // namespace lockstep::cuda
