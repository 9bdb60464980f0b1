#pragma once
// From --device to the device of this rank.

#include <memory>

#include "launcher/common_options.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"
#include "runtime/run/memory_check.h"

namespace lockstep {

// The device of this rank, the same kind on all ranks: with auto a GPU where every rank has one,
// else the CPU, with a line that says why. All ranks together; throws the same error on all of them
// (AgreedError), also where they were not told the same.
std::unique_ptr<Device> choose_device(Session& session, const CommonOptions& options);

// The device of a run and what is opened on it, closed in order at the end.
class RunDevice {
 public:
  // Chooses; see choose_device().
  RunDevice(Session& session, const CommonOptions& options);
  RunDevice(const RunDevice&) = delete;
  RunDevice& operator=(const RunDevice&) = delete;
  ~RunDevice();

  Device& device() { return *device_; }
  MemoryLimits limits() const;
  // Takes the device, has its libraries set themselves up for what `training` has, and joins the
  // communicator of slices. All ranks together. What limits() says is less from then on.
  void open(const RunConfig& config, const Graph& training, const Topology& topology);
  // Lets go of both, and of all their memory; it may be opened again.
  void close();
  Backend& backend() { return *backend_; }
  Communicator& slices() { return *slices_; }

 private:
  Session& session_;
  const CommonOptions& options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> recorded_;  // the device's own, where it has one
  Communicator* slices_ = nullptr;
  bool warned_ = false;  // of what makes products slow
};

// Fills in the device's part from the first GPU of this process; false where there is none.
bool gpu_here(MemoryLimits& limits);

// What the device of --device can run, to plan for it: neither a GPU nor CUDA need be there.
const OpSet& ops_to_plan_for(const CommonOptions& options);

}  // namespace lockstep
