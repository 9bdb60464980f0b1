#pragma once
// A checkpoint's network on a device, with the evaluation set, for `eval` and `predict`.

#include <string>

#include "launcher/ranks/rank_context.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/run/prepared_run.h"
#include "runtime/train/run_context.h"

namespace lockstep {

struct EvaluationOptions {
  CommonOptions common;
  std::string checkpoint;
  bool average = false;  // use the moving average of the weights
};

// Adds the shared flags, --checkpoint and --average to a command.
void add_evaluation_options(CommandSpec& command, EvaluationOptions& options);

// A config whose precision is chosen, and the device.
struct EvaluatedConfig {
  OpenedConfig opened;
  std::unique_ptr<Device> device;
};

// Reads the config, which must be the same on all ranks, chooses the device and, for it and the
// checkpoint, the precision. All ranks together; throws AgreedError.
EvaluatedConfig read_evaluated_config(Session& session,
                                      const EvaluationOptions& options,
                                      RunPurpose purpose);

class EvaluationRun {
 public:
  // Opens data, device and checkpoint, and reads the weights. All ranks together; throws the same
  // error on all of them (AgreedError).
  EvaluationRun(Session& session,
                const EvaluationOptions& options,
                EvaluatedConfig evaluated,
                RunPurpose purpose);

  const RunContext& context() const { return *context_; }
  const RunMemory& memory() const { return memory_; }
  const CheckpointState& state() const { return state_; }

 private:
  void read_weights(const EvaluationOptions& options);

  OpenedConfig opened_;
  RankContext rank_;
  PreparedRun prepared_;
  std::optional<RunContext> context_;
  RunMemory memory_;
  CheckpointState state_;
};

}  // namespace lockstep
