// lockstep replay RUN_DIR --step N
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "collectives/agreement.h"
#include "collectives/find_topology.h"
#include "launcher/commands/checkpoint_config.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/transport.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/run/assembly.h"
#include "runtime/run/same_run.h"
#include "runtime/run/threads.h"
#include "runtime/train/trainer.h"

namespace lockstep {
namespace {

struct ReplayOptions {
  CommonOptions common;
  std::string folder;
  int64_t step = 0;
};

// The bits of a step: the fields of metrics.jsonl by which steps are compared, as JSON texts.
using StepBits = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kCompared[] = {"state_digest", "loss", "grad_norm", "weights_hash"};

// Where two computations of a step differ; both have the same fields, or some that are compared.
struct Difference {
  int64_t step = 0;
  std::string field, recorded, computed;
};

StepBits bits_of(const StepRecord& record) {
  StepBits bits = {{"loss", Json(record.loss).dump()},
                   {"grad_norm", Json(record.grad_norm).dump()}};
  if (record.state_digest)
    bits.insert(bits.begin(), {"state_digest", Json(hash_text_of(*record.state_digest)).dump()});
  if (record.weights_hash)
    bits.push_back({"weights_hash", Json(hash_text_of(*record.weights_hash)).dump()});
  return bits;
}

// A number like 2 is read as an integer, and is computed as a double.
std::string text_of(const Json& value) {
  if (value.is_null() || value.is_string()) return value.dump();
  return Json(value.get<double>()).dump();
}

// What the run has recorded of steps (after, last]; the last line of a step counts. A line that is
// no record is passed over.
std::map<int64_t, StepBits> read_record(const std::filesystem::path& metrics,
                                        int64_t after,
                                        int64_t last) {
  std::map<int64_t, StepBits> steps;
  if (!is_file(metrics)) return steps;  // a pipe would be waited for
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
  for (const CheckpointEntry& entry : list_checkpoints(folder / "checkpoints")) {
    if (entry.step < step && verify(entry.path).empty()) found = entry.path;
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

class Replay {
 public:
  Replay(Session& session, const ReplayOptions& options)
      : session_(session), options_(options), communicator_(session.communicator()) {}

  ExitCode run() {
    run_on_all(communicator_, [&] { prepare(); });
    RunDevice device(session_, options_.common);
    check_same_config(communicator_, config_);
    Topology topology = find_topology(communicator_);
    choose_transport(session_, config_.comm.transport, device.device().ops());
    const CpuShare share = share_cpus(communicator_);
    const std::unique_ptr<NodeMemory> node =
        wants_shared_memory(config_.comm, topology, device.device().ops())
            ? NodeMemory::join(communicator_, topology)
            : nullptr;
    topology.shares_memory = node != nullptr;
    Assembly assembly;
    const auto check_fit = [&] { check_memory(assembly, session_.local_ranks(), device.limits()); };
    run_on_all(communicator_, [&] {
      set_compute_threads(choose_threads(config_, share));
      assembly = assemble(config_,
                          topology,
                          RunPurpose::kTrain,
                          device.device().ops(),
                          state_ ? &*state_ : nullptr);
      take_contents(assembly.data);
      if (options_.step > assembly.config.train.steps)
        throw ConfigError(
            "--step: {}; the run has {} steps", options_.step, assembly.config.train.steps);
      check_fit();
    });
    check_same_data(communicator_, assembly.data.summary);
    device.open(assembly.config, assembly.training, assembly.plan.topology);
    run_on_all(communicator_, check_fit);
    if (node != nullptr) allocate_shared(*node, assembly.plan);
    const RunParts parts =
        parts_of(assembly, communicator_, device.slices(), device.backend(), node.get());
    std::unique_ptr<Trainer> trainer;
    run_on_all(communicator_, [&] { trainer = std::make_unique<Trainer>(parts); });
    compute(*trainer);
    // A step that has no record is held against another computation.
    const bool recorded = !recorded_.empty();
    const bool twice = recorded_.count(options_.step) == 0;
    if (twice) {
      recorded_.merge(computed_);
      compute(*trainer);
    }
    return tell(recorded, twice);
  }

 private:
  void prepare() {
    const std::filesystem::path folder = options_.folder;
    CommonOptions common = options_.common;
    common.config = folder / "config.textproto";
    common.run_dir = folder / "replay";  // where nothing is written
    config_ = read_config(common);
    config_.comm.tune_buckets = false;  // which changes no bit
    checkpoint_ = checkpoint_before(folder, options_.step);
    if (!checkpoint_.empty()) state_ = read_state(checkpoint_);
    if (state_ && adopt_recorded_parameters(*state_, config_.model) && communicator_.rank() == 0)
      warn_of_older_revision(checkpoint_);
    first_ = state_ ? state_->step : 0;
    recorded_ = read_record(folder / "metrics.jsonl", first_, options_.step);
  }

  void compute(Trainer& trainer) {
    trainer.start(checkpoint_.empty() ? "none" : checkpoint_);
    computed_.clear();
    for (const StepRecord& record : trainer.replay(options_.step))
      computed_[record.step] = bits_of(record);
  }

  // Against what the steps were held: the run's record, a second computation, or one for some steps
  // and the other for the rest.
  ExitCode tell(bool recorded, bool twice) {
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
    if (communicator_.rank() == 0) {
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
    write_result(session_, options_.common.json, json);
    return first ? ExitCode::kNumeric : ExitCode::kOk;
  }

  Session& session_;
  const ReplayOptions& options_;
  Communicator& communicator_;
  RunConfig config_;
  std::string checkpoint_;
  std::optional<CheckpointState> state_;  // of it
  int64_t first_ = 0;                     // completed steps that it begins with
  std::map<int64_t, StepBits> recorded_, computed_;
};

ExitCode replay(Session& session, const ReplayOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  run_on_all(session.communicator(), [&] { check_result_path("--json", options.common.json); });
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
      "Any number of ranks may replay what any number has computed. Every step on the way is held\n"
      "against metrics.jsonl: its loss, the gradient's norm, the digest of the weights and moments\n"
      "that it began with, and the hash of its weights. Where the run has recorded nothing of\n"
      "them, they are computed twice, and must come out alike. Exit code 0: all agree; 7: a step\n"
      "differs, and it is said which and in what.";
  command.run = [options](Session& session) { return replay(session, *options); };
  return command;
}

}  // namespace lockstep
