#pragma once
// The config that a checkpoint keeps of its run.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/state.h"
#include "runtime/exec/op_set.h"
#include "runtime/run/open_config.h"

namespace lockstep::launcher {

// The config and the model that the checkpoint's run had, with overrides "path.to.field=value".
// Throws CheckpointError if the checkpoint was written before configs were kept.
run::OpenedConfig config_of_checkpoint(const std::filesystem::path& folder,
                                       const checkpoint::CheckpointState& state,
                                       const std::vector<std::string>& overrides = {});

// The precision in which the checkpoint's run trained. Nothing if no run wrote it (`lockstep
// import`), or if its config cannot be read; if `required`, the latter throws CheckpointError.
std::optional<Precision> recorded_precision(const checkpoint::CheckpointState& state,
                                            const std::string& where,
                                            bool required);

// What AUTO takes from the run that is resumed or evaluated.
struct RecordedChoices {
  std::optional<Precision> precision;
  int64_t lanes = 0;  // 0: nothing was recorded
};
// `config`: the one that may have AUTO. Throws CheckpointError like recorded_precision().
RecordedChoices recorded_choices(const checkpoint::CheckpointState& state,
                                 const std::string& where,
                                 const RunConfig& config);
bool has_auto_choice(const RunConfig& config);

// The type in which `generate` and `sample` compute: see run::choose_precision(). Logs it. `state`:
// the checkpoint's; null if the weights come from elsewhere. Throws CheckpointError like
// recorded_precision().
DType choose_generation_type(const run::OpenedConfig& opened,
                             const exec::OpSet& ops,
                             const checkpoint::CheckpointState* state,
                             const std::string& where);

// Whether the choice of trained parameters, or the encoding of the data, depends on the checkpoint
// too, so that it must be read before the data are opened and the graphs are built.
bool depends_on_checkpoint(const RunConfig& config);

// The run with the default of data.table.missing that an older revision had, if the checkpoint
// recorded that one and the config leaves the field unset: other words would be other inputs.
run::OpenedConfig with_recorded_missing(const run::OpenedConfig& opened,
                                        const checkpoint::CheckpointState& state,
                                        const std::string& checkpoint);

// The run with a model that has the parameters of the checkpoint, if an older revision wrote the
// checkpoint, with another rule for what learns in a file of model.onnx. Nothing if the model has
// these parameters already.
std::optional<run::OpenedConfig> with_recorded_parameters(const run::OpenedConfig& opened,
                                                          const checkpoint::CheckpointState& state);
void warn_of_older_revision(const std::string& checkpoint);

}  // namespace lockstep::launcher
