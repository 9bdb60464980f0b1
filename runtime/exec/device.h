#pragma once
// Where a rank computes: the CPUs that it may use, or one GPU.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/device_state.h"

namespace lockstep::exec {

// The algorithms that a device's libraries use for products and convolutions: see execution.tune.
struct AlgorithmFile {
  std::string path;  // for messages
  std::string text;  // empty: none, the libraries choose
};

// What a run asks of its device.
struct BackendRequest {
  bool tf32 = false;            // products of floats may round to TF32, on devices that have it
  DType compute = DType::kF32;  // type of the products
  bool record_repeated_work = true;  // false: queue the work again each time, for debugging
  AlgorithmFile algorithms = {};
  int64_t lanes_per_pass = 1;  // as execution.lanes_per_pass
};

// How ranks whose work is queued on a device wait for it, and thus for each other.
struct ConnectRequest {
  // Timeouts for queued work: for the first, and for all later work. Later work may also take up to
  // three times as long as the longest so far.
  double first_timeout_s = std::numeric_limits<double>::infinity();
  double timeout_s = std::numeric_limits<double>::infinity();
  // Called every few milliseconds while the host waits; throws if the run cannot continue.
  std::function<void()> while_waiting = [] {};
  // Called with the place where the device writes the word of its DevicePoint (flight_recorder.h)
  // before it begins its first operation; with null before that memory is freed.
  std::function<void(const std::atomic<uint64_t>*)> watch_device = [](const auto*) {};
  // Called with the seconds that the host has waited for the device, 0 once it has finished, and
  // whether that is longer than work may take.
  std::function<void(double, bool)> waited = [](double, bool) {};
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const OpSet& ops() const = 0;
  // "cpu" or "NVIDIA H200 (GPU 3, 0000:1b:00.0)".
  virtual std::string description() const = 0;
  // What determines the bits of a run with products of this type, besides this build: "NVIDIA H200
  // of 132 SMs, driver for CUDA 13.0, runtime 13.0, cuBLASLt 130002, cuDNN 91002". Empty if nothing
  // does.
  virtual std::string bits(DType /*compute*/) const { return ""; }
  // How a user chooses other ones here: "LOCKSTEP_SIMD=AVX512 leaves out AMX". Empty: not at all.
  virtual std::string choice_of_bits() const { return ""; }
  // Free bytes of the device's own memory; 0 if it has no memory of its own.
  virtual size_t free_bytes() const = 0;
  // Watches the device from the first call on; owned by this object. Null if it has no such state.
  virtual DeviceMonitor* monitor() { return nullptr; }
  // Claims the device. Throws MemoryError, Error, and ConfigError if the file of algorithms is not
  // valid or of another device.
  virtual std::unique_ptr<Backend> make_backend(const BackendRequest& request) = 0;
  // Times the algorithms that the device's libraries offer for the ops of these graphs, with `beat`
  // called in between, and returns the text of an AlgorithmFile with the fastest. Takes as much
  // memory as the largest op, and frees it. Throws MemoryError, Error.
  virtual std::string time_algorithms(const BackendRequest& /*request*/,
                                      std::span<const graph::Graph* const> /*graphs*/,
                                      const std::function<void()>& /*beat*/) {
    return "";
  }
  // Returns the communicator for slices in the memory of `backend`, which must be of this device:
  // `control` itself, or one that this object owns and that must not outlive the backend.
  // `topology` is the arrangement of the ranks; those that exchange with each other get connected.
  // Collective: all ranks call it together. Throws CommError, AgreedError, Error.
  virtual collectives::Communicator& connect(collectives::Communicator& control,
                                             Backend& backend,
                                             const collectives::Topology& topology,
                                             const ConnectRequest& request) = 0;
  // Destroys the communicator. Call it before the backend is destroyed.
  virtual void disconnect() {}
};

}  // namespace lockstep::exec
