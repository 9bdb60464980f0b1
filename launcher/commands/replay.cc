// lockstep replay RUN_DIR --step N
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "collectives/agree/agreement.h"
#include "launcher/bench/choose_algorithms.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/rank_context.h"
#include "launcher/run/checkpoint_config.h"
#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/run/defaults.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/train/trainer.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kMaxEnvironmentBytes = size_t{1} << 20;

struct ReplayOptions {
  CommonOptions common;
  std::string folder;
  int64_t step = 0;
};

// The fields of metrics.jsonl in which two computations of a step are compared, as JSON texts.
using StepBits = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kCompared[] = {"state_digest", "loss", "grad_norm", "weights_hash"};

// A field in which two computations of a step differ.
struct Difference {
  int64_t step = 0;
  std::string field, recorded, computed;
};

StepBits bits_of(const metrics::StepRecord& record) {
  StepBits bits = {{"loss", Json(record.loss).dump()},
                   {"grad_norm", Json(record.grad_norm).dump()}};
  if (record.state_digest)
    bits.insert(bits.begin(), {"state_digest", Json(to_hex(*record.state_digest)).dump()});
  if (record.weights_hash)
    bits.push_back({"weights_hash", Json(to_hex(*record.weights_hash)).dump()});
  return bits;
}

// A number such as 2 is read as an integer but computed as a double: compared as doubles.
std::string text_of(const Json& value) {
  if (value.is_null() || value.is_string()) return value.dump();
  return Json(value.get<double>()).dump();
}

// What the run has recorded about steps (after, last]; the last line of a step counts. Lines that
// are not records are skipped.
std::map<int64_t, StepBits> read_record(const std::filesystem::path& metrics,
                                        int64_t after,
                                        int64_t last) {
  std::map<int64_t, StepBits> steps;
  if (!is_file(metrics)) return steps;  // reading a pipe would block
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    try {
      const Json json = Json::parse(line);
      const int64_t step = json.at("step").get<int64_t>();
      if (step <= after || step > last) continue;
      StepBits& bits = steps[step];
      bits.clear();
      for (const char* field : kCompared) {
        if (const Json* value = json.find(field)) bits.push_back({field, text_of(*value)});
      }
    } catch (const JsonError&) {
      continue;
    }
  }
  return steps;
}

// The newest checkpoint from which there is a step to compute; empty: the run's beginning.
std::string checkpoint_before(const std::filesystem::path& folder, int64_t step) {
  std::string found;
  for (const checkpoint::CheckpointEntry& entry :
       checkpoint::list_checkpoints(folder / "checkpoints")) {
    if (entry.step < step && checkpoint::verify(entry.path).empty()) found = entry.path;
  }
  return found;
}

std::optional<Difference> difference(int64_t step,
                                     const StepBits& recorded,
                                     const StepBits& computed) {
  for (const auto& [field, value] : recorded) {
    for (const auto& [other, now] : computed) {
      if (field == other && value != now) return Difference{step, field, value, now};
    }
  }
  return std::nullopt;
}

// Only the run's own number formats give its bits, so that no other value is a remedy. Throws
// ConfigError.
void require_formats(const ExecutionConfig& execution,
                     const exec::OpSet& ops,
                     const std::string& folder) {
  const bool gpu = ops.separate_memory;
  std::string format;
  if (gpu && execution.bf16x3) format = "bf16x3";
  if (!gpu && execution.tf32) format = "TF32";
  if (!ops.computes_in(run::compute_type(execution.precision)))
    format = lockstep::name_of(execution.precision);
  if (format.empty()) return;
  throw ConfigError(
      "{}: the run computed in {}, which device {} does not train in; replay it on {}",
      folder,
      format,
      ops.device,
      gpu ? "CPUs: --device cpu" : "a GPU: --device cuda");
}

// Warns if the run's last start was on a device whose bits are others.
void warn_of_other_device(const std::filesystem::path& folder,
                          const exec::Device& device,
                          const std::string& now) {
  try {
    const Json environment =
        Json::parse(read_file(folder / "environment.json", kMaxEnvironmentBytes));
    const bool gpu = environment.at("devices").at(0).get<std::string>() != "cpu";
    if (gpu != device.ops().separate_memory)
      return log_warn(
          "{}: was computed on {}, and other devices give other bits: replay it with --device {}",
          folder.string(),
          gpu ? "GPUs" : "CPUs",
          gpu ? "cuda" : "cpu");
    const Json* then = environment.at("libraries").find(gpu ? "gpu" : "cpu");
    const std::string choice = device.choice_of_bits();
    if (then == nullptr || then->get<std::string>() == now) return;
    log_warn("{}: was computed with {}, and now with {}, whose bits are others{}",
             folder.string(),
             then->get<std::string>(),
             now,
             choice.empty() ? "" : fmt::format(" ({})", choice));
  } catch (const IoError&) {  // it is a record for people, which may be missing or damaged
  } catch (const JsonError&) {
  }
}

class Replay {
 public:
  Replay(Session& session, const ReplayOptions& options) : session_(session), options_(options) {}

  ExitCode run() {
    collectives::run_on_all(session_.communicator(), [&] { prepare(); });
    std::unique_ptr<exec::Device> device = choose_device(session_, options_.common);
    // The folder is the record; one without a precision is of a revision that computed in FP32, and
    // one without lanes had 8.
    collectives::run_on_all(session_.communicator(), [&] {
      opened_ = run::choose_lanes(opened_, 8).opened;
      opened_ =
          run::choose_precision(opened_, run::RunPurpose::kTrain, device->ops(), Precision::kFp32)
              .opened;
      require_formats(opened_.config.execution, device->ops(), options_.folder);
    });
    if (session_.communicator().rank() == 0)
      warn_of_other_device(
          options_.folder, *device, bits_of_run(*device, opened_.config.execution, algorithms_));
    run::check_same_config(session_.communicator(), opened_.config);
    RankContext rank(
        session_, options_.common, std::move(device), opened_.config.comm, run::RunPurpose::kTrain);
    collectives::Communicator& communicator = rank.communicator();
    run::PreparedRun prepared;
    collectives::run_on_all(communicator, [&] {
      set_compute_threads(run::choose_threads(opened_.config, rank.share));
      prepared = run::prepare_run(
          opened_,
          rank.placed,
          run::RunPurpose::kTrain,
          rank.device.device().ops(),
          {.checkpoint = state_ ? &*state_ : nullptr, .eager = options_.common.eager});
      run::add_checksums(*prepared.data);
      if (options_.step > prepared.config.train.steps)
        throw ConfigError("--step: value is {}; allowed: 1 to {}, the steps of the run",
                          options_.step,
                          prepared.config.train.steps);
    });
    prepared = rank.fit_sums(prepared);
    collectives::run_on_all(communicator, [&] { rank.require_memory(prepared); });
    run::check_same_data(communicator, prepared.data->summary);
    rank.device.use_algorithms(algorithms_);
    rank.device.open(prepared.recorded, prepared.graphs->training, prepared.plan.sharding.topology);
    collectives::run_on_all(communicator, [&] { rank.require_memory(prepared); });
    if (rank.node != nullptr) train::allocate_shared(*rank.node, prepared.plan);
    const train::RunContext context = run::context_of(
        prepared, communicator, rank.device.slices(), rank.device.backend(), rank.node.get());
    std::unique_ptr<train::Trainer> trainer;
    collectives::run_on_all(communicator,
                            [&] { trainer = std::make_unique<train::Trainer>(context); });
    compute(*trainer);
    // A step without a record is compared with a second computation.
    const bool recorded = !recorded_.empty();
    const bool twice = recorded_.count(options_.step) == 0;
    if (twice) {
      recorded_.merge(computed_);
      compute(*trainer);
    }
    return report(recorded, twice);
  }

 private:
  void prepare() {
    const std::filesystem::path folder = options_.folder;
    CommonOptions common = options_.common;
    common.config = folder / "config.textproto";
    common.run_dir = folder / "replay";                  // nothing is written there
    common.set.emplace_back("comm.tune_buckets=false");  // which changes no bit
    opened_ = read_config(common);
    if (!opened_.config.execution.tune.empty()) algorithms_ = recorded_algorithms(folder);
    checkpoint_ = checkpoint_before(folder, options_.step);
    if (!checkpoint_.empty()) state_ = checkpoint::read_state(checkpoint_);
    const auto older = state_ ? with_recorded_parameters(opened_, *state_) : std::nullopt;
    if (older) {
      opened_ = *older;
      if (session_.communicator().rank() == 0) warn_of_older_revision(checkpoint_);
    }
    first_ = state_ ? state_->step : 0;
    recorded_ = read_record(folder / "metrics.jsonl", first_, options_.step);
  }

  void compute(train::Trainer& trainer) {
    trainer.start(checkpoint_.empty() ? "none" : checkpoint_);
    computed_.clear();
    for (const metrics::StepRecord& record : trainer.replay(options_.step))
      computed_[record.step] = bits_of(record);
  }

  // Reports how the steps compare with the run's record, a second computation, or one for some
  // steps and the other for the rest.
  ExitCode report(bool recorded, bool twice) {
    std::optional<Difference> first;
    int64_t compared = 0;
    for (const auto& [step, bits] : recorded_) {
      const auto computed = computed_.find(step);
      if (computed == computed_.end()) continue;
      ++compared;
      if (!first) first = difference(step, bits, computed->second);
    }
    const std::string against = !twice     ? "the run's record"
                                : recorded ? "the run's record and a second computation"
                                           : "a second computation";
    const std::string text =
        first
            ? fmt::format("step {} differs from {}: {} is {}, and was {}",
                          first->step,
                          against,
                          first->field == "state_digest" ? "the state_digest of what it began with"
                                                         : first->field,
                          first->computed,
                          first->recorded)
            : fmt::format(
                  "steps {} to {} agree with {}, bit for bit", first_ + 1, options_.step, against);
    if (session_.communicator().rank() == 0) {
      fmt::print("computed from {} to step {}: {}\n",
                 checkpoint_.empty() ? "the beginning" : checkpoint_,
                 options_.step,
                 text);
      std::fflush(stdout);
    }
    Json json = Json::object({{"from_step", first_},
                              {"step", options_.step},
                              {"against", recorded ? "record" : "second computation"},
                              {"compared_steps", compared},
                              {"agrees", !first.has_value()}});
    if (first) {
      json["differs_at"] = first->step;
      json["field"] = first->field;
    }
    write_result(session_.communicator(), options_.common.json, json);
    return first ? ExitCode::kNumeric : ExitCode::kOk;
  }

  Session& session_;
  const ReplayOptions& options_;
  run::OpenedConfig opened_;
  exec::AlgorithmFile algorithms_;  // with execution.tune
  std::string checkpoint_;
  std::optional<checkpoint::CheckpointState> state_;  // of the checkpoint
  int64_t first_ = 0;                                 // completed steps that it begins with
  std::map<int64_t, StepBits> recorded_, computed_;
};

ExitCode replay(Session& session, const ReplayOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  collectives::run_on_all(session.communicator(),
                          [&] { require_result_path("--json", options.common.json); });
  return Replay(session, options).run();
}

}  // namespace

CommandSpec replay_command() {
  auto options = std::make_shared<ReplayOptions>();
  options->common.log_level = "warn";
  CommandSpec command{.name = "replay",
                      .help = "Compute steps of a run again, and compare their bits"};
  command.add("RUN_DIR", &options->folder, "Folder of a run; nothing in it is changed");
  command.add("--step",
              &options->step,
              "The step to compute, from the newest checkpoint before it or the run's beginning",
              {.required = true, .allowed = AtLeast{1}});
  add_config_options(command, options->common);
  add_device_options(command, options->common);
  add_output_options(command, options->common);
  command.footer =
      "Any number of ranks may replay what any number has computed, on the run's kind of device:\n"
      "GPUs of its model, or any CPU. Every step on the way is compared with metrics.jsonl: its\n"
      "loss, the gradient's norm, the digest of the weights and moments that it began with, and\n"
      "the hash of its weights. If the run has recorded none of them, they are computed twice and\n"
      "compared. Exit code 0: all agree; 7: a step differs, and the output names it and the\n"
      "field.";
  command.run = [options](Session& session) { return replay(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
