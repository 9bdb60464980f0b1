#pragma once
// A checkpoint's network on a device, with the evaluation set, for `eval` and `predict`.

#include <filesystem>
#include <string>

#include "launcher/ranks/rank_context.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/run/prepared_run.h"
#include "runtime/train/run_context.h"

namespace lockstep::launcher {

struct EvaluationOptions {
  CommonOptions common;
  std::string checkpoint;  // empty: that of the run folder that CONFIG is
  bool average = false;    // use the moving average of the weights
  bool report = false;     // print the task's metrics in detail
};

// Adds the shared flags, --checkpoint, --average and --report to a command.
void add_evaluation_options(CommandSpec& command, EvaluationOptions& options);

// A config whose precision is chosen, its checkpoint, and the device.
struct EvaluatedConfig {
  run::OpenedConfig opened;
  std::filesystem::path checkpoint;
  std::unique_ptr<exec::Device> device;
};

// Reads the config, which must be the same on all ranks, chooses the checkpoint (on rank 0), the
// device and, for both, the precision. All ranks together; throws AgreedError.
EvaluatedConfig read_evaluated_config(Session& session,
                                      const EvaluationOptions& options,
                                      run::RunPurpose purpose);

class EvaluationRun {
 public:
  // Opens data, device and checkpoint, and reads the weights. All ranks together; throws the same
  // error on all of them (AgreedError).
  EvaluationRun(Session& session,
                const EvaluationOptions& options,
                EvaluatedConfig evaluated,
                run::RunPurpose purpose);

  const train::RunContext& context() const { return *context_; }
  const train::RunMemory& memory() const { return memory_; }
  const checkpoint::CheckpointState& state() const { return state_; }

 private:
  void read_weights(bool average);

  run::OpenedConfig opened_;
  std::filesystem::path checkpoint_;
  RankContext rank_;
  run::PreparedRun prepared_;
  std::optional<train::RunContext> context_;
  train::RunMemory memory_;
  checkpoint::CheckpointState state_;
};

}  // namespace lockstep::launcher
