#include "tests/reference/cuda_runtime_stub.h"

#include <cstdio>
#include <utility>

#include "runtime/base/error.h"
#include "tests/fibers/nccl_on_host.h"

// What CUDA's headers leave open.
struct CUstream_st {
  std::string name;
};
struct CUevent_st {
  int number = 0;
};

namespace lockstep::testing {
namespace {
thread_local CudaStub stub;
void note(const std::string& line) { stub.journal.push_back(line); }
}  // namespace

CudaStub& cuda_stub() { return stub; }

cudaStream_t compute_stream() {
  static CUstream_st stream{"compute"};
  return &stream;
}

}  // namespace lockstep::testing

namespace lockstep::fibers {
// The parameter is the interface's: what is recorded is kept.
void enqueue(CUstream_st*, std::function<void()> work) { std::exchange(work, nullptr)(); }
void enqueue_exchange(CUstream_st*, std::function<bool()> work) {
  while (!work()) {
  }
}
void hold(CUstream_st*, std::shared_ptr<void>) {}
}  // namespace lockstep::fibers

using lockstep::testing::note;
using lockstep::testing::stub;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int) {
  std::snprintf(pciBusId, static_cast<size_t>(len), "%s", stub.bus_id.c_str());
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (flags != cudaStreamNonBlocking || priority != -5) return cudaErrorInvalidValue;
  *stream = new CUstream_st{"communication"};
  ++stub.streams;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  --stub.streams;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (flags != cudaEventDisableTiming) return cudaErrorInvalidValue;
  *event = new CUevent_st{++stub.events};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --stub.events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  note(fmt::format("record {} on {}", event->number, stream->name));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) { return stub.event_state; }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  note(fmt::format("{} waits for {}", stream->name, event->number));
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the stub"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorStub"; }

}  // extern "C"
