// CUDA's runtime on the host, as much of it as runtime/cuda and collectives/nccl call: memory that
// the host can touch only while queued work is done, streams, events and graphs. What kind of
// machine it plays is set by the environment:
//   FAKE_GPUS              GPUs (1)
//   FAKE_GPU_BYTES         memory of each (8 GiB)
//   FAKE_GPU_NAME          name of each ("stand-in on the host")
//   FAKE_GPU_CAPABILITY    compute capability of each, 89 for 8.9 (90)
//   FAKE_LIBRARY_BYTES     memory that is taken for the first graph, and kept (0)
//   FAKE_GRAPH_NODE_BYTES  memory that each node of a graph takes (0)
//   FAKE_CUDA_ERROR        what cudaGetDeviceCount returns (0)
//   FAKE_CUDA_DRIVER       version of the driver (13000); 0: none
//   FAKE_WEAK_GPU          ordinal of one that is too old
//   FAKE_GPU_BUSY          set: the first use of a GPU fails as one in exclusive mode does
//   FAKE_PEER_COPIES_LOST  1: copies from GPU to GPU do not arrive (0)
//   FAKE_CUDA_ORDER        which order of the work that streams and events allow: host_stream.h
//   FAKE_CUDA_HANG         this piece of work never ends: host_stream.h
//   FAKE_CUDA_FAULT        this piece of work fails, as one that touches foreign memory does
// A call that CUDA's documentation forbids while work is captured breaks the capture here too.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/time.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/kernel_memory.h"

using lockstep::fibers::advance;
using lockstep::fibers::check_arrays;
using lockstep::fibers::done;
using lockstep::fibers::drain;
using lockstep::fibers::enqueue;
using lockstep::fibers::give_memory_back;
using lockstep::fibers::PieceRef;
using lockstep::fibers::Recording;
using lockstep::fibers::take_memory;
using lockstep::fibers::watch_kernels;

struct CUevent_st {
  // The point that it was last recorded at: what must be done until then.
  bool recorded = false;
  std::vector<PieceRef> after;
  std::shared_ptr<Recording> recording;
  std::vector<size_t> recorded_after;
  std::shared_ptr<double> passed_ms = std::make_shared<double>(0);
};
struct CUgraph_st {
  std::shared_ptr<Recording> recording;
  std::vector<std::shared_ptr<void>> held;  // events keep the recording, but not these
};
struct CUgraphExec_st : CUgraph_st {
  size_t bytes = 0;
};

namespace {

struct Machine {
  std::map<char*, size_t> device;  // allocations
  std::map<char*, size_t> pinned_sizes;
  size_t used = 0;
  bool has_graphs = false;  // has ever had one
  std::mutex pinned_mutex;  // the loader's threads pin memory too
  // The thread that captures, and what it records.
  std::thread::id capturing;
  std::shared_ptr<Recording> recording;
  long pieces = 0;                   // of work done
  cudaError_t sticky = cudaSuccess;  // of a fault: what every call returns from then on
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
  const std::lock_guard lock(machine.pinned_mutex);
  return !within(machine.device, address) && !within(machine.pinned_sizes, address);
}

cudaError_t failed(cudaError_t error) { return machine.last = error; }

// Of calls that a thread must not make while it captures: they might wait for what is being
// captured.
bool breaks_capture() {
  if (!machine.recording || machine.capturing != std::this_thread::get_id()) return false;
  machine.recording->broken = true;
  return true;
}

// What a call returns before it does anything: a fault of work done before.
#define RETURN_FAULT() \
  if (machine.sticky != cudaSuccess) return failed(machine.sticky)
#define REFUSE_WHILE_CAPTURING() \
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported)

cudaMemcpyKind kind_of(bool from_device, bool to_device) {
  if (from_device) return to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  return to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

// Large pieces of zeros are given back to the host's system, which makes them again page by page.
void fill(char* memory, int value, size_t bytes) {
  constexpr size_t kLarge = size_t{2} << 20, kPage = 4096;
  const size_t pages = reinterpret_cast<uintptr_t>(memory) % kPage == 0 ? bytes / kPage * kPage : 0;
  if (value == 0 && pages >= kLarge && ::madvise(memory, pages, MADV_DONTNEED) == 0) {
    memory += pages;
    bytes -= pages;
  }
  std::memset(memory, value, bytes);
}

void count_piece() {
  static const long faulty = from_environment("FAKE_CUDA_FAULT", 0);
  if (++machine.pieces != faulty) return;
  machine.sticky = cudaErrorIllegalAddress;
  lockstep::fibers::drop();
}

}  // namespace

bool lockstep::fibers::capturing() {
  return machine.recording != nullptr && machine.capturing == std::this_thread::get_id();
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = std::exchange(machine.last, cudaSuccess);
  return machine.sticky != cudaSuccess ? machine.sticky : last;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
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
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  const char* const name = std::getenv("FAKE_GPU_NAME");
  std::snprintf(properties->name,
                sizeof(properties->name),
                "%s",
                name == nullptr ? "stand-in on the host" : name);
  properties->totalGlobalMem = gpu_bytes();
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  const long capability = from_environment("FAKE_GPU_CAPABILITY", 90);
  properties->major =
      device == from_environment("FAKE_WEAK_GPU", -1) ? 6 : static_cast<int>(capability / 10);
  properties->minor = static_cast<int>(capability % 10);
  properties->multiProcessorCount = 3;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  std::snprintf(bus, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus) {
  unsigned domain = 0, number = 0;
  if (std::sscanf(bus, "%x:%x:", &domain, &number) != 2) return failed(cudaErrorInvalidValue);
  *device = static_cast<int>(number) - 1;
  return *device >= 0 && *device < from_environment("FAKE_GPUS", 1)
             ? cudaSuccess
             : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = gpu_bytes();
  *free = *total - machine.used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  if (machine.used + bytes > gpu_bytes()) return failed(cudaErrorMemoryAllocation);
  lockstep::fibers::guard_memory = protect;
  lockstep::fibers::after_piece = count_piece;
  watch_kernels();
  std::byte* const base = take_memory(bytes);
  // Fewer pages to protect and to bring: most of the stand-in's time.
  ::madvise(base, whole_pages(bytes), MADV_HUGEPAGE);
  ::mprotect(base, whole_pages(bytes), PROT_NONE);
  machine.device[reinterpret_cast<char*>(base)] = bytes;
  machine.used += bytes;
  *memory = base;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr)
    return std::getenv("FAKE_GPU_BUSY") != nullptr ? failed(cudaErrorDevicesUnavailable)
                                                   : cudaSuccess;
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  drain();
  const auto found = machine.device.find(static_cast<char*>(memory));
  if (found == machine.device.end()) return failed(cudaErrorInvalidValue);
  give_memory_back(static_cast<std::byte*>(memory), found->second);
  machine.used -= found->second;
  machine.device.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  if (bytes == 0) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(machine.pinned_mutex);
  *memory = take_memory(bytes);
  machine.pinned_sizes[static_cast<char*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  REFUSE_WHILE_CAPTURING();
  drain();
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(machine.pinned_mutex);
  const auto found = machine.pinned_sizes.find(static_cast<char*>(memory));
  if (found == machine.pinned_sizes.end()) return failed(cudaErrorInvalidValue);
  give_memory_back(static_cast<std::byte*>(memory), found->second);
  machine.pinned_sizes.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  RETURN_FAULT();
  check_arrays("cudaMemsetAsync", {memory});
  enqueue(stream, [=] { fill(static_cast<char*>(memory), value, bytes); });
  return cudaSuccess;
}
// Pageable memory is read or written before the call returns, as CUDA does; pinned memory later.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  RETURN_FAULT();
  const bool to_device = within(machine.device, to), from_device = within(machine.device, from);
  if (kind != cudaMemcpyDefault && kind != kind_of(from_device, to_device))
    return failed(cudaErrorInvalidValue);
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  if (!stream->recording && (is_pageable(to) || is_pageable(from)))
    return cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaMemcpyPeerAsync(
    void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  if (from_environment("FAKE_PEER_COPIES_LOST", 0) != 0) return cudaSuccess;
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
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
  REFUSE_WHILE_CAPTURING();
  drain();
  machine.streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
// Something is done by each question, so that those who ask until all is done see it happen.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  if (stream->recording) return failed(cudaErrorStreamCaptureUnsupported);
  if (done(*stream)) return cudaSuccess;
  advance();
  return machine.sticky != cudaSuccess ? failed(machine.sticky) : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return state;
  }
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  RETURN_FAULT();
  event->recorded = true;
  event->after = stream->after;
  event->recording = stream->recording;
  event->recorded_after = stream->recorded_after;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
// External events note their time whenever a graph is replayed, and order nothing.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const bool external = (flags & cudaEventRecordExternal) != 0;
  if (external != (stream->recording != nullptr)) return failed(cudaErrorInvalidValue);
  RETURN_FAULT();
  enqueue(stream, [passed = event->passed_ms] { *passed = lockstep::now_ms(); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  REFUSE_WHILE_CAPTURING();
  *ms = static_cast<float>(*to->passed_ms - *from->passed_ms);
  return *from->passed_ms > 0 && *ms >= 0 ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  if (event->recording) return failed(cudaErrorCapturedEvent);
  const bool all = std::all_of(
      event->after.begin(), event->after.end(), [](const PieceRef& piece) { return done(piece); });
  if (all) return cudaSuccess;
  advance();
  return machine.sticky != cudaSuccess ? failed(machine.sticky) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  RETURN_FAULT();
  if (!event->recorded) return cudaSuccess;
  if (!event->recording) {
    if (stream->recording) {  // a capture cannot wait for what lies outside it
      stream->recording->broken = true;
      return failed(cudaErrorStreamCaptureIsolation);
    }
    stream->after.insert(stream->after.end(), event->after.begin(), event->after.end());
    return cudaSuccess;
  }
  if (event->recording != machine.recording) return failed(cudaErrorCapturedEvent);
  if (!stream->recording) stream->recording = event->recording;
  stream->recorded_after.insert(
      stream->recorded_after.end(), event->recorded_after.begin(), event->recorded_after.end());
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  RETURN_FAULT();
  if (machine.recording || mode == cudaStreamCaptureModeGlobal)
    return failed(cudaErrorIllegalState);  // one at a time, and other threads go on
  stream->recording = machine.recording = std::make_shared<Recording>();
  stream->origin = true;
  machine.capturing = std::this_thread::get_id();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto recording = std::exchange(stream->recording, nullptr);
  if (recording == nullptr) return failed(cudaErrorIllegalState);
  machine.recording = nullptr;
  // Pieces that nothing comes after, not even the end of the stream where the capture began.
  std::vector<bool> joined(recording->pieces.size());
  const auto join = [&](const std::vector<size_t>& pieces) {
    for (size_t i : pieces) joined[i] = true;
  };
  join(stream->recorded_after);
  for (const Recording::Piece& piece : recording->pieces) join(piece.after);
  for (CUstream_st* each : machine.streams) {
    if (each != stream && each->recording != recording) continue;
    each->recording = nullptr;
    each->recorded_after.clear();
    each->origin = false;
  }
  if (recording->broken) return failed(cudaErrorStreamCaptureInvalidated);
  if (std::find(joined.begin(), joined.end(), false) != joined.end())
    return failed(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{recording, std::exchange(recording->held, {})};
  return cudaSuccess;
}
// Priorities of streams are those of the nodes only if they are asked for.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec,
                                 cudaGraph_t graph,
                                 unsigned long long flags) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  if (flags != cudaGraphInstantiateFlagUseNodePriority) return failed(cudaErrorInvalidValue);
  const auto node = static_cast<size_t>(from_environment("FAKE_GRAPH_NODE_BYTES", 0));
  const size_t bytes = node * graph->recording->pieces.size();
  if (machine.used + bytes > gpu_bytes()) return failed(cudaErrorMemoryAllocation);
  *exec = new CUgraphExec_st{*graph, bytes};
  machine.used += bytes;
  if (!std::exchange(machine.has_graphs, true))
    machine.used += static_cast<size_t>(from_environment("FAKE_LIBRARY_BYTES", 0));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return failed(cudaErrorInvalidValue);
  *count = graph->recording->pieces.size();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  RETURN_FAULT();
  enqueue(stream, *exec->recording);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  RETURN_FAULT();
  REFUSE_WHILE_CAPTURING();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  drain();
  machine.used -= exec->bytes;
  delete exec;
  return cudaSuccess;
}
