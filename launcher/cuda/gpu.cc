#include "launcher/cuda/gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/agree/agreement.h"
#include "collectives/communicator.h"
#include "collectives/nccl/device_wait.h"
#include "launcher/cuda/slices.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/operation_marks.h"
#include "runtime/cuda/planned_ops.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kExchanged = 256;  // bytes of each rank

// The bytes that exchange_first() needs for `ranks` ranks.
size_t first_exchange_bytes(int ranks) { return 2 * kExchanged * static_cast<size_t>(ranks); }

// Runs one small exchange of each kind among the ranks that will exchange with each other, and
// waits for it. NCCL connects them at first use, and allocates most of the GPU memory that it will
// ever use; so memory is planned afterwards, when that is no longer counted as free. `memory` is on
// the device; if this throws, it must outlive the communicator. Collective. Throws CommError,
// Error.
void exchange_first(collectives::Communicator& slices,
                    CudaBackend& backend,
                    const collectives::Topology& topology,
                    std::byte* memory) {
  constexpr int64_t kFloats = kExchanged / sizeof(float);
  std::byte* const send = memory;
  std::byte* const receive = memory + kExchanged * static_cast<size_t>(slices.size());
  const auto wait = [&](int handle) { slices.wait(handle); };
  for (const collectives::RankGroup& group : topology.groups_of(slices.rank())) {
    wait(slices.start_exchange({send, receive, kExchanged, group}));
    wait(slices.start_all_gather(receive, kExchanged, group));
  }
  wait(slices.start_all_gather(receive, kExchanged, slices.everyone()));
  wait(slices.start_reduce_scatter(
      reinterpret_cast<const float*>(send), reinterpret_cast<float*>(receive), kFloats));
  slices.broadcast(receive, kExchanged, 0);
  backend.synchronize();
}

constexpr int kMinCapability = 80;
// Memory left to the driver and the libraries: before they are initialised and the ranks connected,
// and afterwards, for kernels that are loaded later. CUDA graphs are a row of the plan.
constexpr size_t kHeadroomBytes = size_t{960} << 20, kHeadroomOnceConnected = size_t{192} << 20;

std::string explain(cudaError_t error) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  switch (error) {
    case cudaErrorInsufficientDriver:
      if (driver == 0)
        return "no NVIDIA driver is loaded (in a container: is it started with --gpus all?)";
      return fmt::format(
          "the NVIDIA driver supports CUDA {}, this build needs {}: update the driver",
          version_text(driver),
          version_text(runtime));
    case cudaErrorStubLibrary:
      return "libcuda.so.1 is the toolkit's stub and not the driver's: take lib64/stubs out of "
             "LD_LIBRARY_PATH";
    case cudaErrorNoDevice: {
      const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
      return visible == nullptr
                 ? std::string("the NVIDIA driver finds no GPU")
                 : fmt::format("no GPU is visible: CUDA_VISIBLE_DEVICES is '{}'", visible);
    }
    default: return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  }
}

std::string uuid_of(const cudaDeviceProp& properties) {
  std::string text;
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

GpuDescription describe(int ordinal) {
  cudaDeviceProp properties{};
  LOCKSTEP_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  std::array<char, 32> bus{};
  LOCKSTEP_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal));
  return {ordinal,
          properties.name,
          bus.data(),
          uuid_of(properties),
          properties.totalGlobalMem,
          properties.major * 10 + properties.minor,
          properties.multiProcessorCount};
}

// Freeing the memory of a GPU that hangs does not end, so the error might never be printed. Only
// trainings have a watchdog, which would end the process.
void end_soon(const std::string& text) {
  std::thread([text] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::fprintf(stderr, "lockstep: error: %s\n", text.c_str());
    std::_Exit(static_cast<int>(ExitCode::kPeer));
  }).detach();
}

class GpuDevice final : public exec::Device {
 public:
  explicit GpuDevice(const GpuRequest& request)
      : request_(request), gpu_(describe(request.ordinal)) {}

  const exec::OpSet& ops() const override { return planned_ops(); }
  std::string description() const override {
    return fmt::format("{} (GPU {}, {})", gpu_.name, gpu_.ordinal, gpu_.pci_bus_id);
  }
  std::string bits(DType /*compute*/) const override {
    int driver = 0, runtime = 0;
    LOCKSTEP_CUDA(cudaDriverGetVersion(&driver));
    LOCKSTEP_CUDA(cudaRuntimeGetVersion(&runtime));
    const std::string cudnn = cudnn_version();
    return fmt::format("{} of {} SMs, driver for CUDA {}, runtime {}, cuBLASLt {}, {}",
                       gpu_.name,
                       gpu_.multiprocessors,
                       version_text(driver),
                       version_text(runtime),
                       cublasLtGetVersion(),
                       cudnn.empty() ? "no cuDNN" : "cuDNN " + cudnn);
  }
  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    use();
    LOCKSTEP_CUDA(cudaMemGetInfo(&free, &total));
    return free - std::min(free, connected_ ? kHeadroomOnceConnected : kHeadroomBytes);
  }
  exec::DeviceMonitor* monitor() override {
    if (monitor_ == nullptr) monitor_ = make_gpu_monitor(gpu_.pci_bus_id, description());
    return monitor_.get();
  }
  std::unique_ptr<exec::Backend> make_backend(const exec::BackendRequest& request) override {
    use();
    return cuda::make_backend({.device = gpu_.ordinal,
                               .capability = gpu_.capability,
                               .multiprocessors = gpu_.multiprocessors,
                               .compute = request.compute,
                               .tf32 = request.tf32,
                               .record_graphs = request.record_repeated_work,
                               .peak_flops = peak_flops(request)});
  }
  collectives::Communicator& connect(collectives::Communicator& control,
                                     exec::Backend& backend,
                                     const collectives::Topology& topology,
                                     const exec::ConnectRequest& waiting) override {
    connected_ = true;
    auto& mine = static_cast<CudaBackend&>(backend);
    if (control.size() == 1) {
      watch_alone(mine, waiting);
      return control;
    }
    backend_ = &mine;
    // Freeing it waits for the device; so it must be freed after the work that may hang there has
    // been aborted.
    DeviceArena memory;
    std::byte* scratch = nullptr;
    collectives::run_on_all(control, [&] {
      memory.reserve(first_exchange_bytes(control.size()), mine.stream());
      scratch = memory.take(first_exchange_bytes(control.size()), "the first exchange");
    });
    Disconnect unless_connected(*this);
    collectives::run_on_all(control, [&] { marks_.emplace(mine.stream()); });
    forget_marks_ = [waiting] { waiting.watch_device(nullptr); };
    waiting.watch_device(marks_->word());
    slices_ = make_slices(control, mine, request_, waiting, *marks_);
    mine.watch([this, &control, waiting] {
      waiting.while_waiting();
      control.check();
      slices_->check();
    });
    exchange_first(*slices_, mine, topology, scratch);
    unless_connected.device = nullptr;
    return *slices_;
  }
  void disconnect() override {
    // NCCL would wait for ever for the graphs that captured its operations to be destroyed.
    const size_t graphs = slices_ != nullptr ? backend_->graphs() : 0;
    if (graphs > 0) {
      log_warn("internal error: {} CUDA graphs outlive NCCL's communicator", graphs);
      static_cast<void>(slices_.release());
    }
    slices_.reset();
    wait_.reset();
    if (forget_marks_) std::exchange(forget_marks_, nullptr)();
    marks_.reset();
    connected_ = false;
  }

 private:
  // Disconnects if an exception passes.
  struct Disconnect {
    explicit Disconnect(GpuDevice& of) : device(&of) {}
    ~Disconnect() {
      if (device != nullptr) device->disconnect();
    }
    Disconnect(const Disconnect&) = delete;
    Disconnect& operator=(const Disconnect&) = delete;
    GpuDevice* device;
  };

  // NCCL's communicator does it if there are several ranks.
  void watch_alone(CudaBackend& backend, const exec::ConnectRequest& waiting) {
    wait_.emplace(backend.stream(), waiting.first_timeout_s, waiting.timeout_s, waiting.waited);
    backend.watch([this, waiting] {
      waiting.while_waiting();
      const collectives::DeviceWait::State state = wait_->check();
      check(state.error, "work queued on the GPU");
      if (state.exceeded_s == 0) return;
      const std::string text =
          fmt::format("{} on {} has not finished its work within {:g} s: it hangs",
                      description(),
                      host_name(),
                      state.exceeded_s);
      end_soon(text);
      throw CommError("{}", text);
    });
  }

  // Makes the GPU current. If another process holds it, its first use fails.
  void use() const {
    cudaError_t error = cudaSetDevice(gpu_.ordinal);
    if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context
    if (error == cudaSuccess) return;
    cudaGetLastError();
    if (error == cudaErrorDevicesUnavailable)
      throw MemoryError(
          "{} is busy: another process uses it exclusively (compute mode), or it is being reset; "
          "`nvidia-smi` shows the processes",
          description());
    if (error == cudaErrorMemoryAllocation)
      throw MemoryError(
          "{} has no memory left for a context: other processes use all of it; `nvidia-smi` shows "
          "the processes",
          description());
    check(error, "the first use of the GPU");
  }

  // In the type in which products are computed.
  double peak_flops(const exec::BackendRequest& backend) const {
    const GpuPeaks& peaks = request_.peaks;
    switch (backend.compute) {
      case DType::kBF16: return peaks.bf16;
      case DType::kF16: return peaks.fp16;
      default: return backend.tf32 ? peaks.tf32 : peaks.fp32;
    }
  }

  GpuRequest request_;
  GpuDescription gpu_;
  CudaBackend* backend_ = nullptr;               // of the run, once connected
  std::optional<collectives::DeviceWait> wait_;  // for the work of a single rank
  std::optional<OperationMarks> marks_;          // of the work of slices_
  std::function<void()> forget_marks_;           // so that nobody reads them any more
  std::unique_ptr<exec::DeviceMonitor> monitor_;
  std::unique_ptr<collectives::Communicator> slices_;
  bool connected_ = false;
};

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

GpuProbe probe_gpus() {
  GpuProbe probe;
  int count = 0;  // unchanged on errors
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    probe.why_none = explain(error == cudaSuccess ? cudaErrorNoDevice : error);
    return probe;
  }
  std::string weak;
  try {
    for (int i = 0; i < count; ++i) {
      const GpuDescription gpu = describe(i);
      if (gpu.capability >= kMinCapability) {
        probe.gpus.push_back(gpu);
        continue;
      }
      // A weak GPU may only drive a display; the others count.
      append_item(weak,
                  fmt::format("GPU {} ({}) has compute capability {}.{}",
                              i,
                              gpu.name,
                              gpu.capability / 10,
                              gpu.capability % 10));
    }
    if (probe.gpus.empty())
      probe.why_none = fmt::format(
          "{}; {}.{} or newer is needed", weak, kMinCapability / 10, kMinCapability % 10);
  } catch (const Error& failure) {
    probe.gpus.clear();
    probe.why_none = failure.what();
  }
  return probe;
}

std::unique_ptr<exec::Device> make_device(const GpuRequest& request) {
  return std::make_unique<GpuDevice>(request);
}

}  // namespace lockstep::cuda
