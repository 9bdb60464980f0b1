#pragma once
// Stage 4 of a run's preparation: what the config leaves to the data and to the weights is filled
// in. Nothing changes the config after it.

#include <memory>

#include "runtime/exec/op_set.h"
#include "runtime/run/open_data.h"

namespace lockstep::checkpoint {
struct CheckpointState;
}  // namespace lockstep::checkpoint

namespace lockstep::run {

struct ResolvedRun {
  RunPurpose purpose = RunPurpose::kTrain;
  RunConfig config;  // resolved: steps, model outputs, what is trained besides a LoRA
  std::shared_ptr<const models::OpenedModel> model;  // of config.model
  std::shared_ptr<data::OpenedData> data;
  models::ModelIo io;
  const exec::OpSet* ops = nullptr;  // of the device, borrowed

  // Whether samples of a language model are rows of tokens, documents and positions.
  bool samples_are_packed() const;
};

// The config with the fields that have no effect for this purpose at their neutral values: if
// nothing is trained, no gradients are summed, and there are no residuals.
RunConfig config_for(RunPurpose purpose, const RunConfig& config);

// `checkpoint`: see PrepareOptions (prepared_run.h). Throws ConfigError if the model and the data
// do not fit each other.
ResolvedRun resolve(const OpenedConfig& opened,
                    RunPurpose purpose,
                    std::shared_ptr<data::OpenedData> data,
                    const exec::OpSet& ops,
                    const checkpoint::CheckpointState* checkpoint);

}  // namespace lockstep::run
