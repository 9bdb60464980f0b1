#pragma once
// Where a rank computes: the CPUs that it may use, or one GPU.

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "runtime/exec/backend.h"

namespace lockstep {

// What a run asks of its device.
struct BackendRequest {
  bool tf32 = false;                 // products of floats may round to TF32, where there is such
  DType compute = DType::kF32;       // of products
  bool record_repeated_work = true;  // false: queue it anew each time, for debugging
};

// How ranks whose work is queued on a device wait for it, and so for each other.
struct ConnectRequest {
  // For what is queued to be done: the first time, and later, where it may also take three times as
  // long as it ever did.
  double first_timeout_s = std::numeric_limits<double>::infinity();
  double timeout_s = std::numeric_limits<double>::infinity();
  // Called every few milliseconds while the host waits; throws where the run cannot go on.
  std::function<void()> while_waiting = [] {};
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const OpSet& ops() const = 0;
  // "cpu" or "NVIDIA H200 (GPU 3, 0000:1b:00.0)".
  virtual std::string description() const = 0;
  // What decides the bits of its results beside this build: "NVIDIA H200 of 132 SMs, driver
  // for CUDA 13.0, runtime 13.0, cuBLASLt 130002, cuDNN 91002". Empty where nothing does.
  virtual std::string bits() const { return ""; }
  // Bytes of the device's own memory that a run can have now; 0 without memory of its own.
  virtual size_t free_bytes() const = 0;
  // Takes the device. Throws MemoryError, Error.
  virtual std::unique_ptr<Backend> make_backend(const BackendRequest& request) = 0;
  // The communicator of slices in the memory of `backend`, one of this device: `control` itself, or
  // one that this object owns and that must not outlive the backend. The ranks lie as `topology`
  // says, and those that exchange with each other are connected. All ranks together. Throws
  // CommError, AgreedError, Error.
  virtual Communicator& connect(Communicator& control,
                                Backend& backend,
                                const Topology& topology,
                                const ConnectRequest& request) = 0;
  // Lets go of the communicator; before the backend goes.
  virtual void disconnect() {}
};

}  // namespace lockstep
