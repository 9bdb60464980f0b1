#pragma once
// From --device to the device of this rank.

#include <memory>
#include <span>
#include <string>

#include "launcher/command_line/common_options.h"
#include "launcher/cuda/plugin.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"
#include "runtime/run/fit.h"

namespace lockstep::launcher {

// What CUDA's library finds for this process.
struct FoundGpus {
  const cuda::Plugin* plugin = nullptr;  // null if it cannot be loaded, or need not be
  cuda::GpuProbe probe;
  bool has_driver = false;  // known only for "auto"
};

// Looks for GPUs. `device` is a value of --device: for "auto", CUDA's libraries are not loaded if
// there is no driver.
FoundGpus find_gpus(const std::string& device);

// The device of this rank, of the same kind on all ranks. With --device auto it is a GPU if every
// rank has one; otherwise the CPU, and the reason is logged, for training also if it is that no
// NVIDIA driver is here. All ranks together; throws the same
// error on all of them (AgreedError), also if their values of --device differ.
std::unique_ptr<exec::Device> choose_device(Session& session,
                                            const CommonOptions& options,
                                            bool trains = false);

// Device::bits() of a run with this config, and the checksum of its algorithms if it has some.
std::string bits_of_run(const exec::Device& device,
                        const ExecutionConfig& execution,
                        const exec::AlgorithmFile& algorithms);

// The device of this rank and what is opened on it, closed in order at the end.
class RankDevice {
 public:
  RankDevice(Session& session, const CommonOptions& options, std::unique_ptr<exec::Device> device);
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;
  ~RankDevice();

  exec::Device& device() { return *device_; }
  run::MemoryLimits limits() const;
  // What open() uses from here on, the same on all ranks: see execution.tune.
  void use_algorithms(exec::AlgorithmFile algorithms) { algorithms_ = std::move(algorithms); }
  // Device::time_algorithms() of a run. The device must be closed.
  std::string time_algorithms(const RunConfig& config, std::span<const graph::Graph* const> graphs);
  std::string bits(const RunConfig& config) const {
    return bits_of_run(*device_, config.execution, algorithms_);
  }
  // Makes the backend, lets its libraries prepare for the ops of `training`, and connects the
  // communicator for gradients and parameters. All ranks together. limits() returns less from then
  // on, because the libraries take memory.
  void open(const RunConfig& config,
            const graph::Graph& training,
            const collectives::Topology& topology);
  // Frees backend and communicator with all their memory; the device may be opened again.
  void close();
  exec::Backend& backend() { return *backend_; }
  collectives::Communicator& slices() { return *slices_; }
  bool eager() const { return options_.eager; }  // no CUDA graphs

 private:
  Session& session_;
  const CommonOptions& options_;
  exec::BackendRequest request_of(const RunConfig& config) const;

  std::unique_ptr<exec::Device> device_;
  exec::AlgorithmFile algorithms_;
  std::unique_ptr<exec::Backend> backend_;
  std::unique_ptr<collectives::Communicator> recorded_;  // the device's communicator, if it has one
  collectives::Communicator* slices_ = nullptr;
  bool warned_ = false;  // about slow products
};

// Fills in the device's part from the first GPU of this process; false if there is none.
bool gpu_here(run::MemoryLimits& limits);

// The ops of the device that --device names, for planning: neither a GPU nor CUDA need be there.
const exec::OpSet& ops_to_plan_for(const CommonOptions& options);

}  // namespace lockstep::launcher
