#include "launcher/run/resumed_run.h"

#include <filesystem>
#include <sstream>
#include <vector>

#include "collectives/agree/agreement.h"
#include "launcher/run/checkpoint_config.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/run/local_copies.h"
#include "runtime/config/parse.h"
#include "runtime/run/lanes.h"
#include "runtime/run/same_run.h"

namespace lockstep::launcher {
namespace {

// The newest state of a run folder that can be read, and in `where` its checkpoint; empty: there is
// none. The checkpoint's other files may be damaged: the trainer checks them.
std::string newest_state(const std::filesystem::path& run_dir, std::string& where) {
  const std::vector<checkpoint::CheckpointEntry> entries =
      checkpoint::list_checkpoints(run_dir / "checkpoints");
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      where = entry->path;
      return checkpoint::to_text(checkpoint::read_state(entry->path));
    } catch (const Error&) {  // also of a file that is missing
      continue;
    }
  }
  return "";
}

}  // namespace

RecordedChoices resumed_choices(const std::string& resume, const RunConfig& config) {
  if (resume == "none" || !has_auto_choice(config)) return {};
  const std::filesystem::path run_dir = config.output.run_dir;
  std::string where = resume;
  if (resume != "auto") {
    where = checkpoint::resolve_checkpoint(resume);
    return recorded_choices(checkpoint::read_state(where), where, config);
  }
  const std::string text = newest_state(run_dir, where);
  if (!text.empty()) return recorded_choices(checkpoint::parse_state(text, where), where, config);
  const std::filesystem::path record = run_dir / "config.textproto";
  if (!is_file(run_dir / checkpoint::kLocalCopiesName) || !is_file(record)) return {};
  const RunConfig recorded =
      config::parse_recorded_config(config::read_config_text(record), record.string());
  return {recorded.execution.precision, recorded.train.lanes};
}

SameChoices choose_same(Session& session,
                        const TrainOptions& options,
                        const run::OpenedConfig& given,
                        const exec::OpSet& ops) {
  collectives::Communicator& communicator = session.communicator();
  std::string text;
  // What any rank leaves to AUTO is read for all: they are compared only afterwards.
  RunConfig asked = given.config;
  const auto on_any = [&](bool value) {
    return collectives::sum_over_ranks(communicator, value ? 1 : 0) > 0;
  };
  if (on_any(asked.execution.precision == Precision::kAuto))
    asked.execution.precision = Precision::kAuto;
  if (on_any(asked.train.lanes == 0)) asked.train.lanes = 0;
  collectives::run_on_root(communicator, [&] {
    const RecordedChoices found = resumed_choices(options.resume, asked);
    text = fmt::format("{} {}",
                       found.lanes,
                       found.precision ? lockstep::name_of(*found.precision) : std::string("none"));
  });
  std::istringstream words(collectives::broadcast_text(communicator, text));
  RecordedChoices recorded;
  std::string name;
  words >> recorded.lanes >> name;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16})
    if (name == lockstep::name_of(precision)) recorded.precision = precision;
  SameChoices chosen;
  collectives::run_on_all(communicator, [&] {
    const run::ChosenLanes lanes = run::choose_lanes(given, recorded.lanes);
    chosen = {
        lanes.text,
        run::choose_precision(lanes.opened, run::RunPurpose::kTrain, ops, recorded.precision)};
  });
  run::check_same_config(communicator, chosen.precision.opened.config);
  return chosen;
}

ResumedConfig find_state(const RankContext& rank,
                         const TrainOptions& options,
                         const run::OpenedConfig& opened) {
  if (!depends_on_checkpoint(opened.config) || options.resume == "none") return {opened, {}, {}};
  collectives::Communicator& communicator = rank.communicator();
  std::string text, where = options.resume;
  collectives::run_on_root(communicator, [&] {
    if (options.resume == "auto")
      text = newest_state(opened.config.output.run_dir, where);
    else
      text = checkpoint::to_text(
          checkpoint::read_state(where = checkpoint::resolve_checkpoint(options.resume)));
  });
  text = collectives::broadcast_text(communicator, text);
  if (text.empty()) return {opened, {}, {}};
  const checkpoint::CheckpointState state = checkpoint::parse_state(text, "--resume");
  run::OpenedConfig same;
  std::optional<run::OpenedConfig> recorded;
  collectives::run_on_all(communicator, [&] {
    same = with_recorded_missing(opened, state, where);
    recorded = with_recorded_parameters(same, state);
  });
  if (!recorded) return {same, state, {}};
  return {*recorded, state, where};
}

}  // namespace lockstep::launcher
