// lockstep predict CONFIG --checkpoint DIR --out FILE.safetensors
#include <fmt/core.h>

#include <cstdio>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/evaluation.h"
#include "launcher/commands/results.h"
#include "models/registry.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/train/evaluation/predictor.h"

namespace lockstep {
namespace {

struct PredictOptions {
  EvaluationOptions evaluation;
  std::string out;
};

constexpr char kOutputTensor[] = "output";

void check_model(const PredictOptions& options) {
  check_result_path("--out", options.out);
  const RunConfig config = read_config(options.evaluation.common);
  const ModelTraits model = traits_of(config.model);
  const bool of_vocabulary =
      model.text_task == TextTask::kNextToken || model.text_task == TextTask::kMaskedTokens;
  if (model.input == ModelInput::kTokens && of_vocabulary)
    throw ConfigError(
        "model: is a {}, whose outputs are one row of logits for each token; allowed: the other "
        "models, and tasks that do not predict tokens (`lockstep generate` continues a text)",
        model.section);
}

ExitCode predict(Session& session, const PredictOptions& options) {
  Communicator& communicator = session.communicator();
  const CommonOptions& common = options.evaluation.common;
  init_log(common.log_level, communicator.rank(), communicator.size());
  run_on_all(communicator, [&] { check_model(options); });
  const EvaluationRun run(session, options.evaluation, RunPurpose::kPredict);
  Predictor predictor(run.parts(), run.memory());
  const std::vector<float> outputs = predictor.run();
  const int64_t samples = predictor.samples(), columns = predictor.columns();
  const int64_t tokens = predictor.tokens();
  std::vector<int64_t> extents = {samples, columns};
  if (tokens > 0) extents.insert(extents.begin() + 1, tokens);
  const CheckpointState& state = run.state();
  run_on_root(communicator, [&] {
    replace_file(options.out, [&](const std::filesystem::path& unfinished) {
      write_safetensors(unfinished,
                        {{kOutputTensor, extents, outputs}},
                        {{"lockstep_step", std::to_string(state.step)}});
    });
  });
  Json json;
  json["step"] = state.step;
  json["samples"] = samples;
  if (tokens > 0) json["tokens"] = tokens;
  json["outputs"] = columns;
  json["weights_hash"] = hash_text_of(state.weights_hash);
  write_result(session, common.json, json);
  if (communicator.rank() == 0) {
    fmt::print("step {}: {} outputs of each of {}{} samples are in {}, tensor '{}'\n",
               state.step,
               columns,
               tokens > 0 ? fmt::format("{} tokens of each of ", tokens) : "",
               samples,
               options.out,
               kOutputTensor);
    std::fflush(stdout);
  }
  return ExitCode::kOk;
}

}  // namespace

CommandSpec predict_command() {
  auto options = std::make_shared<PredictOptions>();
  CommandSpec command{.name = "predict",
                      .help = "Write what a network gives for each sample of the evaluation set"};
  add_evaluation_options(command, options->evaluation);
  command.add("--out",
              &options->out,
              "The safetensors file to write: tensor 'output' (samples, outputs) f32, in the set's "
              "order, before softmax or sigmoid; of models that say something of each token "
              "(samples, tokens, outputs), with zeros where there is padding",
              {.required = true});
  command.run = [options](Session& session) { return predict(session, *options); };
  return command;
}

}  // namespace lockstep
