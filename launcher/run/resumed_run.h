#pragma once
// What a training takes from the run that it resumes, before its data are opened.

#include <optional>
#include <string>

#include "launcher/command_line/train_options.h"
#include "launcher/ranks/rank_context.h"
#include "launcher/run/checkpoint_config.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/run/precision.h"

namespace lockstep::launcher {

// What AUTO in `config` takes from the run that --resume names: the newest checkpoint that can be
// read or, if there are only the hosts' copies, the run folder. Throws ConfigError and
// CheckpointError.
RecordedChoices resumed_choices(const std::string& resume, const RunConfig& config);

// The config without AUTO, and the log's text about its lanes (see choose_lanes()).
struct SameChoices {
  std::string lanes;
  run::ChosenPrecision precision;
};

// Makes the choices, for which rank 0 reads what the run to resume recorded. All ranks together;
// throws AgreedError, also if the ranks were given different configs.
SameChoices choose_same(Session& session,
                        const TrainOptions& options,
                        const run::OpenedConfig& given,
                        const exec::OpSet& ops);

// A config and, if it depends on a checkpoint (see depends_on_checkpoint()), the state of the one
// that --resume names.
struct ResumedConfig {
  run::OpenedConfig opened;
  std::optional<checkpoint::CheckpointState> state;
  std::string older;  // the checkpoint's name, if an older revision wrote it
};

// Reads that state, in the run's folder or elsewhere; the config then has the parameters and the
// words for a missing value that the checkpoint recorded. All ranks together; throws AgreedError.
ResumedConfig find_state(const RankContext& rank,
                         const TrainOptions& options,
                         const run::OpenedConfig& opened);

}  // namespace lockstep::launcher
