// lockstep eval CONFIG --checkpoint DIR
#include <fmt/core.h>

#include <optional>
#include <utility>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/run/evaluation.h"
#include "launcher/run/summary.h"
#include "launcher/run/task_report_text.h"
#include "runtime/base/checksum.h"
#include "runtime/base/log.h"
#include "runtime/train/evaluation/evaluator.h"

namespace lockstep::launcher {
namespace {

ExitCode evaluate(Session& session, const EvaluationOptions& options) {
  collectives::Communicator& communicator = session.communicator();
  init_log(options.common.log_level, communicator.rank(), communicator.size());
  EvaluatedConfig evaluated = read_evaluated_config(session, options, run::RunPurpose::kEvaluate);
  collectives::run_on_all(communicator,
                          [&] { check_report(options.report, evaluated.opened.model->traits()); });
  const EvaluationRun run(session, options, std::move(evaluated), run::RunPurpose::kEvaluate);
  const train::RunContext& context = run.context();
  train::Evaluator evaluator(context, run.memory());
  if (options.report) evaluator.keep_report();
  const train::Evaluation result = evaluator.run();

  Json json;
  const checkpoint::CheckpointState& state = run.state();
  json["step"] = state.step;
  json["samples"] = result.samples;
  train::each_metric(
      result, context.model, [&](const std::string& name, double value) { json[name] = value; });
  json["weights_hash"] = to_hex(state.weights_hash);
  const std::optional<int64_t> bad_records = count_bad_records(context);
  if (bad_records) json["bad_records"] = *bad_records;
  const std::vector<std::string>& names = context.data.summary.class_names;
  if (options.report) json["report"] = to_json(evaluator.report(), names);
  write_result(session.communicator(), options.common.json, json);
  if (communicator.rank() == 0) {
    fmt::print("step {}: evaluation loss {:.6f}{} on {} samples{}\n",
               state.step,
               result.loss,
               train::words_for(result, context.model),
               result.samples,
               words_for(bad_records));
    if (options.report) fmt::print("{}", to_text(evaluator.report(), names));
  }
  return ExitCode::kOk;
}

}  // namespace

CommandSpec eval_command() {
  auto options = std::make_shared<EvaluationOptions>();
  CommandSpec command{.name = "eval",
                      .help = "Evaluate a checkpoint on the evaluation set",
                      .also = "evaluate evaluation test validate val"};
  add_evaluation_options(command, *options);
  command.run = [options](Session& session) { return evaluate(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
