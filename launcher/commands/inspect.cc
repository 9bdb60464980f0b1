// lockstep inspect DIR|FILE
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "collectives/agree/agreement.h"
#include "launcher/bench/bucket_record.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/models/inspect_onnx.h"
#include "launcher/ranks/session.h"
#include "models/huggingface/folder.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/train/folder/run_end.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kShown = 5;  // newest operations of a rank

Json to_json(const FlightMoment& moment, const std::vector<FlightEntry>& entries) {
  Json json = Json::object({{"rank", moment.rank},
                            {"host", moment.host},
                            {"process", moment.process},
                            {"step", moment.step},
                            {"last", text_of(moment)}});
  for (const FlightEntry& entry : entries)
    json["entries"].push_back(Json::object({{"time_ns", entry.time_ns},
                                            {"step", entry.step},
                                            {"collective", static_cast<int64_t>(entry.collective)},
                                            {"what", text_of(entry)}}));
  return json;
}

// For each rank of the newest start in the run folder, prints its host and process and what it did
// last. If `json` is not empty, writes that and the newest operations to it. Throws CheckpointError
// if there are no flight recorders.
void show_flight(const std::filesystem::path& run_dir, const std::string& json) {
  const std::filesystem::path folder = run_dir / "flight";
  Json report;
  int ranks = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto reader = FlightReader::open(flight_path(folder, rank));
    if (reader == nullptr) {
      if (rank == 0) throw CheckpointError("'{}': no flight recorder of rank 0", folder.string());
      fmt::print("rank {}: no flight recorder here\n", rank);
      continue;
    }
    const FlightMoment moment = reader->now();
    const std::vector<FlightEntry> entries = reader->entries();
    ranks = moment.ranks;
    fmt::print(
        "rank {} on {}, process {}: {}\n", rank, moment.host, moment.process, text_of(moment));
    for (size_t i = entries.size() - std::min(kShown, entries.size()); i < entries.size(); ++i)
      fmt::print("  step {}: {}\n", entries[i].step, text_of(entries[i]));
    report["ranks"].push_back(to_json(moment, entries));
  }
  write_json(json, report);
}

struct InspectOptions {
  std::string folder;  // or file
  std::vector<std::string> set;
  std::string json;
  bool tensors = false;
  bool flight = false;
  bool done = false;
};

constexpr ExitCode kNotDone{1};  // as test and grep exit for "no"

// Recognises running statistics by the names in batch norms (models/image_layers.cc).
bool is_running_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var");
}

void print_state(const checkpoint::CheckpointState& state, bool tensors) {
  int64_t parameters = 0, statistics = 0;
  for (const checkpoint::NamedSlice& slice : state.layout)
    (is_running_statistic(slice.name) ? statistics : parameters) += slice.shape.elements();
  const auto count = [&](auto is) { return std::ranges::count_if(state.moments, is); };
  const auto moments = count(checkpoint::is_moment);
  const bool average =
      count([](const auto& name) { return name == checkpoint::kAverageArray; }) > 0;
  const auto residuals =
      count([](const auto& name) { return name.starts_with(checkpoint::kResidualPrefix); });
  fmt::print("  step {}, {} samples, weights_hash {}\n",
             state.step,
             state.samples,
             to_hex(state.weights_hash));
  fmt::print(
      "  {} parameters{} in {} tensors; optimizer {} with {} moment{}{}{}\n",
      parameters,
      statistics > 0 ? fmt::format(" and {} running statistics", statistics) : "",
      state.layout.size(),
      state.optimizer,
      moments,
      plural(moments),
      average ? "; with the average of the weights" : "",
      residuals > 0 ? fmt::format("; with {} arrays of compressed gradients", residuals) : "");
  fmt::print("  written by Lockstep {} on {} rank{}, {} lanes, global batch {}, seed {}\n",
             state.lockstep_version,
             state.ranks,
             plural(state.ranks),
             state.lanes,
             state.global_batch,
             state.seed);
  if (state.best_metric)
    fmt::print("  best evaluation so far {:.6g} at step {}\n", *state.best_metric, state.best_step);
  for (const checkpoint::FileRecord& file : state.files)
    fmt::print("  {:<40}{:>14} bytes\n", file.name, file.size);
  if (!tensors) return;
  for (const checkpoint::NamedSlice& slice : state.layout)
    fmt::print("    {:<44}{}\n", slice.name, to_string(slice.shape));
}

void print_buckets(const BucketRecord& record) {
  fmt::print("  comm.tune_buckets chose comm.bucket_mib {:g} on {} ranks{}\n",
             record.bucket_mib,
             record.ranks,
             record.trials.empty() ? "" : ": ms a step with " + to_text(record.trials));
}

// The record of the run that a checkpoint, RUN_DIR/checkpoints/step-..., belongs to.
std::optional<BucketRecord> buckets_beside(const std::filesystem::path& checkpoint,
                                           std::vector<std::string>& problems) {
  try {
    return read_bucket_record(canonical(checkpoint).parent_path().parent_path());
  } catch (const Error& error) {
    problems.push_back(error.what());
    return std::nullopt;
  }
}

// Reports whether the run of a folder is complete. Throws IoError.
ExitCode report_done(const InspectOptions& options) {
  const std::filesystem::path folder = options.folder;
  const std::optional<train::RunEnd> end = train::read_run_end(folder);
  const bool done = end && end->done();
  const auto newest = checkpoint::find_latest(folder / "checkpoints");
  const int64_t kept = newest ? newest->step : 0;
  fmt::print("{}\n",
             end ? train::text_of(*end)
                 : fmt::format("not done: no start in '{}' has come to its end; {}",
                               folder.string(),
                               newest ? fmt::format("its newest checkpoint has step {}", kept)
                                      : "it has no checkpoint"));
  write_json(options.json, Json::object({{"done", done}, {"step", end ? end->step : kept}}));
  return done ? ExitCode::kOk : kNotDone;
}

// Whether `path` is an ONNX file or a config, whose model must be one.
bool is_of_onnx(const std::string& path) { return is_onnx_path(path) || is_file(path); }

OnnxConfig network_of(const InspectOptions& options) {
  try {
    return onnx_config_of(options.folder, options.set);
  } catch (const ConfigError& error) {
    const bool names_itself =
        is_onnx_path(options.folder) || options.folder.ends_with(".textproto");
    if (names_itself) throw;
    throw ConfigError("'{}' is not a checkpoint, an ONNX file (.onnx) or a config: {}",
                      options.folder,
                      error.what());
  }
}

// Rejects a file that is known to be neither an ONNX file nor a config.
void require_known_file(const std::string& path) {
  if (is_onnx_path(path) || !is_file(path)) return;
  if (const std::string begin = begin_of_file(path); file_kind(begin))
    throw ConfigError(
        "{} {}{}",
        path,
        is_not(begin, "an ONNX file, a config or a checkpoint"),
        file_kind(begin).id == std::string_view("safetensors")
            ? fmt::format("; lockstep import CONFIG {} --out FOLDER makes a checkpoint of it", path)
            : "");
}

// --flight and --done need a run folder, --set an ONNX file or a config.
void check_flags(const InspectOptions& options) {
  if (is_of_onnx(options.folder) && (options.flight || options.done))
    throw ConfigError("{} needs a run folder; '{}' is an ONNX file or a config",
                      options.flight ? "--flight" : "--done",
                      options.folder);
  if (!is_of_onnx(options.folder) && !options.set.empty())
    throw ConfigError("--set needs an ONNX file or a config; '{}' is neither", options.folder);
}

// The checkpoint to show. If the folder is something else that is known, the error names it.
std::filesystem::path checkpoint_in(const std::filesystem::path& folder) {
  try {
    return checkpoint::resolve_checkpoint(folder);
  } catch (const CheckpointError& error) {
    if (!is_folder(folder) || lockstep::is_there(folder / "checkpoints")) throw;
    throw CheckpointError("{}; it {}",
                          error.what(),
                          huggingface::is_model_folder(folder)
                              ? "is a model's folder, for model.from or train.init_from"
                              : huggingface::what_it_is_instead(folder));
  }
}

ExitCode inspect(Session& session, const InspectOptions& options) {
  collectives::run_on_root(session.communicator(), [&] {
    require_known_file(options.folder);
    check_flags(options);
    require_result_path("--json", options.json);
  });
  if (options.done) {
    ExitCode code = ExitCode::kOk;
    collectives::run_on_root(session.communicator(), [&] { code = report_done(options); });
    return code;
  }
  collectives::run_on_root(session.communicator(), [&] {
    if (options.flight) return show_flight(options.folder, options.json);
    if (is_of_onnx(options.folder))
      return show_onnx(network_of(options), options.tensors, options.json);
    const std::filesystem::path folder = checkpoint_in(options.folder);
    fmt::print("{}\n", folder.string());
    std::fflush(stdout);
    const checkpoint::CheckpointState state = checkpoint::read_state(folder);
    print_state(state, options.tensors);
    std::vector<std::string> problems = checkpoint::verify(folder);
    const auto buckets = buckets_beside(folder, problems);
    if (buckets) print_buckets(*buckets);
    for (const std::string& problem : problems) fmt::print("  PROBLEM {}\n", problem);
    if (problems.empty()) fmt::print("  verified: every checksum holds\n");
    std::fflush(stdout);
    if (!options.json.empty()) {
      Json json;
      json["folder"] = folder.string();
      json["step"] = state.step;
      json["weights_hash"] = to_hex(state.weights_hash);
      if (buckets) json["tuned_bucket_mib"] = buckets->bucket_mib;
      json["problems"] = problems;
      write_json(options.json, json);
    }
    if (!problems.empty())
      throw CheckpointError(
          "{}: {} problem{} found", folder.string(), problems.size(), plural(problems.size()));
  });
  return ExitCode::kOk;
}

}  // namespace

CommandSpec inspect_command() {
  auto options = std::make_shared<InspectOptions>();
  CommandSpec command{.name = "inspect",
                      .help = "Show and verify a checkpoint, or show an ONNX file",
                      .also = "info show describe ls"};
  command.add("DIR|FILE",
              &options->folder,
              "A checkpoint, checkpoints/best, a checkpoints folder or a run folder (its newest "
              "checkpoint); or a network: FILE.onnx, or a config whose model is one",
              {.required = true, .also = "checkpoint ckpt run run_dir input i"});
  command.add("--set",
              &options->set,
              "For a network: how it would be trained, model.onnx.FIELD=value; can be repeated",
              {.one_each_time = true});
  command.add("--json", &options->json, "Write the findings to this file as JSON");
  command.add("--tensors", &options->tensors, "Also list the parameters");
  command.add("--flight",
              &options->flight,
              "For a run folder: show what each rank did last, even if it was killed");
  command.add("--done",
              &options->done,
              "For a run folder: report whether its run is complete; exit code 0 if so, 1 if not");
  command.run = [options](Session& session) { return inspect(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
