#include "launcher/commands/resumed_run.h"

#include <filesystem>
#include <vector>

#include "collectives/agreement.h"
#include "launcher/commands/checkpoint_config.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/config/parse.h"
#include "runtime/run/same_run.h"
#include "runtime/train/checkpoints/local_copies.h"

namespace lockstep {
namespace {

// The newest state of a run folder that can be read, and in `where` its checkpoint; empty: there is
// none. The checkpoint's other files may be damaged: the trainer checks them.
std::string newest_state(const std::filesystem::path& run_dir, std::string& where) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(run_dir / "checkpoints");
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      where = entry->path;
      return to_text(read_state(entry->path));
    } catch (const Error&) {  // also of a file that is missing
      continue;
    }
  }
  return "";
}

// The precision that the run to resume recorded, in the newest checkpoint that can be read or, if
// there are only the hosts' copies, in the run folder. Nothing if no run is resumed.
std::optional<Precision> resumed_precision(const TrainOptions& options,
                                           const RunConfig& config,
                                           const OpSet& ops) {
  if (options.resume == "none") return std::nullopt;
  const std::filesystem::path run_dir = config.output.run_dir;
  std::string where = options.resume;
  if (options.resume != "auto") {
    where = resolve_checkpoint(options.resume);
    return recorded_precision(read_state(where), where, ops.separate_memory);
  }
  const std::string text = newest_state(run_dir, where);
  if (!text.empty())
    return recorded_precision(parse_state(text, where), where, ops.separate_memory);
  const std::filesystem::path record = run_dir / "config.textproto";
  if (!is_file(run_dir / kLocalCopiesName) || !is_file(record)) return std::nullopt;
  return parse_recorded_config(read_config_text(record), record.string()).execution.precision;
}

}  // namespace

ChosenPrecision choose_same_precision(Session& session,
                                      const TrainOptions& options,
                                      const OpenedConfig& given,
                                      const OpSet& ops) {
  Communicator& communicator = session.communicator();
  std::string name;
  const int64_t choosing =
      sum_over_ranks(communicator, given.config.execution.precision == Precision::kAuto ? 1 : 0);
  run_on_root(communicator, [&] {
    if (choosing == 0) return;
    if (const auto recorded = resumed_precision(options, given.config, ops))
      name = name_of(*recorded);
  });
  name = broadcast_text(communicator, name);
  std::optional<Precision> recorded;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16})
    if (name == name_of(precision)) recorded = precision;
  ChosenPrecision chosen;
  run_on_all(communicator,
             [&] { chosen = choose_precision(given, RunPurpose::kTrain, ops, recorded); });
  check_same_config(communicator, chosen.opened.config);
  return chosen;
}

ResumedConfig find_state(const RankContext& rank,
                         const TrainOptions& options,
                         const OpenedConfig& opened) {
  if (!depends_on_checkpoint(opened.config) || options.resume == "none") return {opened, {}, {}};
  Communicator& communicator = rank.communicator();
  std::string text, where = options.resume;
  run_on_root(communicator, [&] {
    if (options.resume == "auto")
      text = newest_state(opened.config.output.run_dir, where);
    else
      text = to_text(read_state(where = resolve_checkpoint(options.resume)));
  });
  text = broadcast_text(communicator, text);
  if (text.empty()) return {opened, {}, {}};
  const CheckpointState state = parse_state(text, "--resume");
  OpenedConfig same;
  std::optional<OpenedConfig> recorded;
  run_on_all(communicator, [&] {
    same = with_recorded_missing(opened, state, where);
    recorded = with_recorded_parameters(same, state);
  });
  if (!recorded) return {same, state, {}};
  return {*recorded, state, where};
}

}  // namespace lockstep
