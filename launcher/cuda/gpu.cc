#include "launcher/cuda/gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "collectives/agreement.h"
#include "launcher/cuda/first_exchange.h"
#include "launcher/cuda/slices.h"
#include "runtime/base/error.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/planned_ops.h"

namespace lockstep::cuda {
namespace {

constexpr int kMinCapability = 80;
// Memory left to the driver and the libraries: before they are initialised and the ranks connected,
// and afterwards, for later kernels and graphs.
constexpr size_t kHeadroomBytes = size_t{1} << 30, kHeadroomOnceConnected = size_t{1} << 28;

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

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

// Dense rates, without sparsity, in TFLOP/s, from the vendor's data sheets: FP32, TF32, and BF16 or
// FP16.
struct Rate {
  const char* name;
  double fp32, tf32, half;
};
constexpr Rate kRates[] = {{"B200", 75, 1100, 2250},
                           {"H200 NVL", 60, 417.5, 835},
                           {"H200", 67, 494.7, 989.4},
                           {"H100 PCIe", 51, 378, 756},
                           {"H100 NVL", 60, 417.5, 835},
                           {"H100", 67, 494.7, 989.4},
                           {"GH200", 67, 494.7, 989.4},
                           {"A100", 19.5, 156, 312},
                           {"A800", 19.5, 156, 312},
                           {"A40", 37.4, 74.8, 149.7},
                           {"A30", 10.3, 82, 165},
                           {"A10", 31.2, 62.5, 125},
                           {"L40S", 91.6, 183, 362},
                           {"L40", 90.5, 90.5, 181},
                           {"L4", 30.3, 60, 121},
                           {"RTX 4090", 82.6, 82.6, 165.2}};

// Whether `words` occur in `name` as full words: the A40 is not an RTX A4000.
bool has_words(const std::string& name, const std::string& words) {
  const auto part_of_word = [&](size_t i) {
    return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
  };
  for (size_t at = name.find(words); at != std::string::npos; at = name.find(words, at + 1)) {
    if ((at == 0 || !part_of_word(at - 1)) && !part_of_word(at + words.size())) return true;
  }
  return false;
}

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(const GpuRequest& request)
      : request_(request), gpu_(describe(request.ordinal)) {}

  const OpSet& ops() const override { return planned_ops(); }
  std::string description() const override {
    return fmt::format("{} (GPU {}, {})", gpu_.name, gpu_.ordinal, gpu_.pci_bus_id);
  }
  std::string bits() const override {
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
  std::unique_ptr<Backend> make_backend(const BackendRequest& request) override {
    use();
    return cuda::make_backend({gpu_.ordinal,
                               request.tf32,
                               request.record_repeated_work,
                               peak_flops(gpu_.name, request.compute, request.tf32)});
  }
  Communicator& connect(Communicator& control,
                        Backend& backend,
                        const Topology& topology,
                        const ConnectRequest& waiting) override {
    connected_ = true;
    if (control.size() == 1) return control;
    auto& mine = static_cast<CudaBackend&>(backend);
    // Freeing it waits for the device; so it must be freed after the work that may hang there has
    // been aborted.
    DeviceArena memory;
    std::byte* scratch = nullptr;
    run_on_all(control, [&] {
      memory.reserve(first_exchange_bytes(control.size()), mine.stream());
      scratch = memory.take(first_exchange_bytes(control.size()), "the first exchange");
    });
    Disconnect unless_connected(*this);
    slices_ = make_slices(control, mine, request_, waiting);
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
    slices_.reset();
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

  GpuRequest request_;
  GpuDescription gpu_;
  std::unique_ptr<Communicator> slices_;
  bool connected_ = false;
};

}  // namespace

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
      weak += fmt::format("{}GPU {} ({}) has compute capability {}.{}",
                          weak.empty() ? "" : ", ",
                          i,
                          gpu.name,
                          gpu.capability / 10,
                          gpu.capability % 10);
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

double peak_flops(const std::string& name, DType compute, bool tf32) {
  for (const Rate& rate : kRates) {
    if (!has_words(name, rate.name)) continue;
    if (compute != DType::kF32) return rate.half * 1e12;
    return (tf32 ? rate.tf32 : rate.fp32) * 1e12;
  }
  return 0;
}

std::unique_ptr<Device> make_device(const GpuRequest& request) {
  return std::make_unique<GpuDevice>(request);
}

}  // namespace lockstep::cuda
