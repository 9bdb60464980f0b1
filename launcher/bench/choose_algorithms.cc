#include "launcher/bench/choose_algorithms.h"

#include <vector>

#include "collectives/agree/agreement.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launcher {
namespace {

std::filesystem::path copy_in(const std::filesystem::path& run_dir) {
  return run_dir / "algorithms.txt";
}

// The text of the file; empty if there is none.
std::string read_algorithms(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = size_t{16} << 20;
  if (!is_there(path)) return "";
  std::string text = read_file(path, kMaxBytes);
  if (text.empty())
    throw ConfigError("{}: is empty; remove it, and the run times the algorithms again",
                      path.string());
  return text;
}

// Ranks that find a file must find the one that rank 0 does, because hosts may have folders of
// their own.
void require_file_of_root(collectives::Communicator& communicator,
                          const std::string& path,
                          const std::string& text) {
  const std::vector<std::string> checksums =
      collectives::gather_texts(communicator, text.empty() ? "" : to_hex(hash_text(text)));
  for (size_t r = 1; r < checksums.size(); ++r) {
    if (checksums[r].empty() || checksums[r] == checksums[0]) continue;
    throw collectives::AgreedError(
        ExitCode::kUsage,
        fmt::format("execution.tune: '{}' has the checksum {} on rank {}, but on rank 0 {}; copy "
                    "rank 0's file to the other hosts, or remove theirs",
                    path,
                    checksums[r],
                    r,
                    checksums[0].empty() ? "it does not exist" : "it is " + checksums[0]));
  }
}

// Times the algorithms and writes the file. Returns its text.
std::string time_and_write(RankContext& rank,
                           const run::PreparedRun& prepared,
                           const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  if (!parent.empty() && !is_folder(parent))
    throw ConfigError("execution.tune: value is '{}'; the folder '{}' does not exist",
                      path.string(),
                      parent.string());
  const double start_ms = now_ms();
  log_info(
      "execution.tune: '{}' does not exist, timing the algorithms of products and convolutions",
      path.string());
  const plan::RunGraphs& graphs = *prepared.graphs;
  std::vector<const graph::Graph*> all = {&graphs.training};
  if (graphs.evaluation) all.push_back(&*graphs.evaluation);
  for (const auto* buckets : {&graphs.length_bucket_training, &graphs.length_bucket_evaluation})
    for (const graph::Graph& bucket : *buckets) all.push_back(&bucket);
  std::string text = rank.device.time_algorithms(prepared.config, all);
  write_file_atomically(path, text);
  log_info("execution.tune: wrote '{}' in {:.1f} s", path.string(), (now_ms() - start_ms) / 1000);
  return text;
}

// On rank 0: finds or makes the run's algorithms, and keeps a copy in its folder.
void choose_on_root(RankContext& rank,
                    const run::PreparedRun& prepared,
                    const std::string& resume,
                    exec::AlgorithmFile& algorithms) {
  const std::filesystem::path folder = prepared.config.output.run_dir;
  const std::filesystem::path copy = copy_in(folder);
  const bool begun = !checkpoint::list_checkpoints(folder / "checkpoints").empty();
  if (begun && resume != "none" && algorithms.text.empty() && is_there(copy)) {
    log_info("execution.tune: '{}' does not exist, the run goes on with its copy '{}'",
             algorithms.path,
             copy.string());
    algorithms = recorded_algorithms(folder);
    return;
  }
  if (algorithms.text.empty()) algorithms.text = time_and_write(rank, prepared, algorithms.path);
  if (begun && resume == "none") return;  // the trainer rejects this start
  train::check_generation(folder);
  try {
    write_file_atomically(copy, algorithms.text);
  } catch (const IoError& error) {
    log_warn("{}; the run continues, and a restart needs '{}'", error.what(), algorithms.path);
  }
}

}  // namespace

exec::AlgorithmFile choose_algorithms(RankContext& rank,
                                      const run::PreparedRun& prepared,
                                      const std::string& resume) {
  collectives::Communicator& communicator = rank.communicator();
  exec::AlgorithmFile algorithms{prepared.config.execution.tune, ""};
  collectives::run_on_all(communicator,
                          [&] { algorithms.text = read_algorithms(algorithms.path); });
  require_file_of_root(communicator, algorithms.path, algorithms.text);
  collectives::run_on_root(communicator,
                           [&] { choose_on_root(rank, prepared, resume, algorithms); });
  algorithms.path = collectives::broadcast_text(communicator, algorithms.path);
  algorithms.text = collectives::broadcast_text(communicator, algorithms.text);
  log_info("execution.tune: the algorithms of '{}', checksum {}",
           algorithms.path,
           to_hex(hash_text(algorithms.text)));
  return algorithms;
}

exec::AlgorithmFile recorded_algorithms(const std::filesystem::path& run_dir) {
  const std::filesystem::path copy = copy_in(run_dir);
  exec::AlgorithmFile algorithms{copy.string(), read_algorithms(copy)};
  if (algorithms.text.empty())
    throw CheckpointError(
        "'{}' does not exist, but the run computes with the algorithms that it names "
        "(execution.tune)",
        copy.string());
  return algorithms;
}

}  // namespace lockstep::launcher
