// CUDA's runtime on the host, as much of it as runtime/cuda and collectives/nccl call: memory that
// the host can touch only while queued work is done, streams, events and graphs. What kind of
// machine it plays is set by the environment:
//   FAKE_GPUS              GPUs (1)
//   FAKE_GPU_BYTES         memory of each (8 GiB)
//   FAKE_CUDA_ERROR        what cudaGetDeviceCount returns (0)
//   FAKE_CUDA_DRIVER       version of the driver (13000); 0: none
//   FAKE_GPU_BUSY          set: the first use of a GPU fails as one in exclusive mode does
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/time.h"
#include "tests/fibers/host_stream.h"

using lockstep::fibers::drain;
using lockstep::fibers::enqueue;
using lockstep::fibers::Recording;

struct CUevent_st {
  CUstream_st* stream = nullptr;
  unsigned long operations = 0;
  std::shared_ptr<Recording> recording;
  std::shared_ptr<double> passed_ms = std::make_shared<double>(0);
};
struct CUgraph_st {
  std::shared_ptr<Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<Recording> recording;
};

namespace {

struct Machine {
  std::map<char*, size_t> device;  // allocations
  std::set<char*> pinned;
  std::map<char*, size_t> pinned_sizes;
  size_t used = 0;
  std::set<CUstream_st*> streams;
  cudaError_t last = cudaSuccess;
  int current = 0;
};
Machine machine;

long from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

size_t gpu_bytes() { return static_cast<size_t>(from_environment("FAKE_GPU_BYTES", 8L << 30)); }

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void protect(bool open) {
  for (const auto& [base, bytes] : machine.device)
    ::mprotect(base, whole_pages(bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool within(const std::map<char*, size_t>& ranges, const void* address) {
  auto* const at = const_cast<char*>(static_cast<const char*>(address));
  auto after = ranges.upper_bound(at);
  return after != ranges.begin() && at < (--after)->first + after->second;
}

bool is_pageable(const void* address) {
  return !within(machine.device, address) && !within(machine.pinned_sizes, address);
}

cudaError_t failed(cudaError_t error) { return machine.last = error; }

}  // namespace

cudaError_t cudaGetLastError() { return std::exchange(machine.last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    default: return "an error of the stand-in for CUDA";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  static std::string name;
  name = "error " + std::to_string(error);
  return name.c_str();
}

cudaError_t cudaGetDeviceCount(int* count) {
  const auto error = static_cast<cudaError_t>(from_environment("FAKE_CUDA_ERROR", 0));
  if (error != cudaSuccess) return failed(error);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool hidden = visible != nullptr && *visible == '\0';
  *count = hidden ? 0 : static_cast<int>(from_environment("FAKE_GPUS", 1));
  return *count == 0 ? failed(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(from_environment("FAKE_CUDA_DRIVER", 13000));
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= from_environment("FAKE_GPUS", 1))
    return failed(cudaErrorInvalidDevice);
  machine.current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = machine.current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "stand-in on the host");
  properties->totalGlobalMem = gpu_bytes();
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  std::snprintf(bus, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = gpu_bytes();
  *free = *total - machine.used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (machine.used + bytes > gpu_bytes()) return failed(cudaErrorMemoryAllocation);
  lockstep::fibers::guard_memory = protect;
  void* base = ::mmap(
      nullptr, whole_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  // Fewer pages to protect and to bring: most of the stand-in's time.
  ::madvise(base, whole_pages(bytes), MADV_HUGEPAGE);
  machine.device[static_cast<char*>(base)] = bytes;
  machine.used += bytes;
  *memory = base;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr)
    return std::getenv("FAKE_GPU_BUSY") != nullptr ? failed(cudaErrorDevicesUnavailable)
                                                   : cudaSuccess;
  drain();
  const auto found = machine.device.find(static_cast<char*>(memory));
  if (found == machine.device.end()) return failed(cudaErrorInvalidValue);
  ::munmap(memory, whole_pages(found->second));
  machine.used -= found->second;
  machine.device.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  machine.pinned_sizes[static_cast<char*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  drain();
  machine.pinned_sizes.erase(static_cast<char*>(memory));
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
// Pageable memory is read or written before the call returns, as CUDA does; pinned memory later.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  if (!stream->recording && (is_pageable(to) || is_pageable(from))) drain();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  machine.streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  drain();
  machine.streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->recording) return failed(cudaErrorStreamCaptureUnsupported);
  drain();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaStreamQuery(stream); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->operations = stream->operations;
  event->recording = stream->recording;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
// External events note their time whenever a graph is replayed, and order nothing.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const bool external = (flags & cudaEventRecordExternal) != 0;
  if (external != (stream->recording != nullptr)) return failed(cudaErrorInvalidValue);
  enqueue(stream, [passed = event->passed_ms] { *passed = lockstep::now_ms(); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  drain();
  *ms = static_cast<float>(*to->passed_ms - *from->passed_ms);
  return *from->passed_ms > 0 && *ms >= 0 ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->recording) return failed(cudaErrorCapturedEvent);
  drain();
  return cudaSuccess;
}
// Everything runs in the order given, so there is nothing to wait for; only a stream that waits for
// work that is being recorded joins the record.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->recording && !stream->recording) {
    stream->recording = event->recording;
    stream->unjoined = true;
  }
  if (stream->recording && event->recording && event->stream != nullptr &&
      event->operations == event->stream->operations && stream->origin)
    event->stream->unjoined = false;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->recording = std::make_shared<Recording>();
  stream->origin = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto recording = stream->recording;
  bool unjoined = false;
  for (CUstream_st* each : machine.streams) {
    if (each->recording != recording) continue;
    unjoined = unjoined || (!each->origin && each->unjoined);
    each->recording = nullptr;
    each->origin = each->unjoined = false;
  }
  *graph = nullptr;
  if (unjoined) return failed(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{recording};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  enqueue(stream, [recording = exec->recording] {
    for (const auto& work : *recording) work();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  drain();
  delete exec;
  return cudaSuccess;
}
