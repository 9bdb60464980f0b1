#pragma once
// A checkpoint's network on a device, with the evaluation set, for `eval` and `predict`.

#include <string>

#include "launcher/ranks/rank_context.h"
#include "runtime/checkpoint/state.h"
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

// Reads the config, which must be the same on all ranks. All ranks together; throws AgreedError.
OpenedConfig read_evaluated_config(Session& session, const EvaluationOptions& options);

class EvaluationRun {
 public:
  // Opens data, device and checkpoint, and reads the weights. All ranks together; throws the same
  // error on all of them (AgreedError).
  EvaluationRun(Session& session,
                const EvaluationOptions& options,
                const OpenedConfig& opened,
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
