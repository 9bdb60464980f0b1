// Which checkpoint a run resumes from.
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/run/saving.h"

namespace lockstep::checkpoint {
namespace {

// The newest checkpoint whose files match their checksums; empty if there is none. Damaged ones are
// skipped with a warning. Throws CheckpointError if all are damaged.
std::string newest_intact(const std::filesystem::path& root, const std::string& run_dir) {
  std::vector<CheckpointEntry> entries = list_checkpoints(root);
  std::string newest_problem;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::vector<std::string> problems = verify(entry->path);
    if (problems.empty()) return entry->path;
    log_warn("skipping {}: {}", entry->path.string(), problems.front());
    if (newest_problem.empty()) newest_problem = problems.front();
  }
  if (!newest_problem.empty())
    throw CheckpointError(
        "run folder '{}' has checkpoints but none can be read; `lockstep inspect` shows why; the "
        "newest: {}",
        run_dir,
        newest_problem);
  return "";
}

// A checkpoint of the run folder, or that of a path; empty if there is none. On rank 0.
std::string choose(const std::string& run_dir, const std::string& resume) {
  const std::filesystem::path root = std::filesystem::path(run_dir) / "checkpoints";
  if (resume == "auto") return newest_intact(root, run_dir);
  const std::vector<CheckpointEntry> entries = list_checkpoints(root);
  if (resume != "none") {
    const std::string chosen = resolve_checkpoint(resume);
    const int64_t step = read_state(chosen).step;
    // Resuming from an earlier step would leave two histories in one run folder.
    if (!entries.empty() && entries.back().step > step)
      throw CheckpointError(
          "--resume: run folder '{}' already has a checkpoint of step {}, after step {} of the one "
          "to resume from; give --resume auto to continue from the newest, or another --run-dir",
          run_dir,
          entries.back().step,
          step);
    return chosen;
  }
  if (entries.empty()) return "";
  throw CheckpointError(
      "run folder '{}' already has checkpoints; give --resume auto to continue that run, or "
      "another --run-dir",
      run_dir);
}

}  // namespace

bool Saving::resume(const std::string& resume, const Restore& restore) {
  const auto restore_from = [&](const std::filesystem::path& folder) {
    good_step_ = restore(folder, local_.holds(folder));
    log_info("resuming from {} at step {}", folder.string(), *good_step_);
    return true;
  };
  std::string chosen;
  collectives::run_on_root(run_.communicator,
                           [&] { chosen = choose(run_.run_dir.string(), resume); });
  chosen = collectives::broadcast_text(run_.communicator, chosen);
  local_.open(/*discard_old=*/resume == "none");
  if (resume == "auto") {
    const std::optional<int64_t> step = local_.newest_after(
        chosen.empty() ? -1 : step_of_name(std::filesystem::path(chosen).filename().string()));
    try {
      if (step) return restore_from(local_.root() / checkpoint_name(*step));
    } catch (const collectives::AgreedError& error) {
      if (chosen.empty()) throw;
      log_warn("the hosts' copies of step {} cannot be used: {}", *step, error.what());
    }
  }
  return !chosen.empty() && restore_from(chosen);
}

}  // namespace lockstep::checkpoint
