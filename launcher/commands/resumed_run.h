#pragma once
// What a training takes from the run that it resumes, before its data are opened.

#include <optional>
#include <string>

#include "launcher/commands/train_options.h"
#include "launcher/ranks/rank_context.h"
#include "runtime/checkpoint/state.h"
#include "runtime/run/precision.h"

namespace lockstep {

// The config with its precision, for which rank 0 reads what the run to resume recorded. All ranks
// together; throws AgreedError, also if the ranks were given different configs.
ChosenPrecision choose_same_precision(Session& session,
                                      const TrainOptions& options,
                                      const OpenedConfig& given,
                                      const OpSet& ops);

// A config and, if it depends on a checkpoint (see depends_on_checkpoint()), the state of the one
// that --resume names.
struct ResumedConfig {
  OpenedConfig opened;
  std::optional<CheckpointState> state;
  std::string older;  // the checkpoint's name, if an older revision wrote it
};

// Reads that state, in the run's folder or elsewhere; the config then has the parameters and the
// words for a missing value that the checkpoint recorded. All ranks together; throws AgreedError.
ResumedConfig find_state(const RankContext& rank,
                         const TrainOptions& options,
                         const OpenedConfig& opened);

}  // namespace lockstep
