#pragma once
// A checkpoint's network on a device, with the evaluation set: what eval and predict begin with.

#include <string>

#include "launcher/ranks/devices.h"
#include "runtime/checkpoint/state.h"
#include "runtime/run/assembly.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

struct EvaluationOptions {
  CommonOptions common;
  std::string checkpoint;
  bool average = false;  // the moving average of the weights in their place
};

// Adds the flags to a command.
void add_evaluation_options(CommandSpec& command, EvaluationOptions& options);

class EvaluationRun {
 public:
  // Opens everything and reads the weights. All ranks together; throws the same error on all of
  // them (AgreedError).
  EvaluationRun(Session& session, const EvaluationOptions& options, RunPurpose purpose);

  const Assembly& assembly() const { return assembly_; }
  const RunParts& parts() const { return *parts_; }
  const RunMemory& memory() const { return memory_; }
  const CheckpointState& state() const { return state_; }

 private:
  RunDevice device_;
  Assembly assembly_;
  std::optional<RunParts> parts_;
  RunMemory memory_;
  CheckpointState state_;
};

}  // namespace lockstep
