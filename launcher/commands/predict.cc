// lockstep predict CONFIG --checkpoint DIR --out FILE.safetensors
#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/run/evaluation.h"
#include "launcher/run/summary.h"
#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/train/evaluation/predictor.h"
#include "runtime/train/evaluation/token_losses.h"

namespace lockstep::launcher {
namespace {

struct PredictOptions {
  EvaluationOptions evaluation;
  std::string out;
  bool logits = false;  // for language models: also write the outputs
};

constexpr char kOutputTensor[] = "output";

// Whether the model predicts tokens. Throws ConfigError if it does not, and --logits is given.
bool predicts_tokens(const PredictOptions& options, const config::ModelTraits& model) {
  const bool of_tokens = model.input == config::ModelInput::kTokens &&
                         (model.text_task == config::TextTask::kNextToken ||
                          model.text_task == config::TextTask::kMaskedTokens);
  if (options.logits && !of_tokens)
    throw ConfigError("--logits: allowed only with models that predict tokens; the model is {}",
                      model.section);
  return of_tokens;
}

// Tensors of one file.
class Outputs {
 public:
  void add(const std::string& name, std::vector<int64_t> extents, std::vector<float> values) {
    values_.push_back(std::move(values));
    tensors_.push_back({name, std::move(extents), values_.back()});
  }
  // Adds to the file's metadata.
  void tell(const std::string& name, const std::string& value) { metadata_[name] = value; }
  void write(const std::string& path) const {
    replace_file(path, [&](const std::filesystem::path& unfinished) {
      checkpoint::write_safetensors(unfinished, tensors_, metadata_);
    });
  }

 private:
  std::deque<std::vector<float>> values_;
  std::vector<checkpoint::F32Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Puts a list of names into the file's metadata and the JSON. Names from a file may not be UTF-8,
// and JSON must be.
void add_names(const char* field,
               const std::vector<std::string>& names,
               Outputs* outputs,
               Json* json) {
  if (names.empty()) return;
  // The metadata are in the file's header, and safetensors' own readers reject one of 100 MB.
  constexpr size_t kMaxBytes = size_t{1} << 26;
  const std::string list = Json(names).dump({.replace_invalid = true});
  if (list.size() <= kMaxBytes) outputs->tell(field, list);
  (*json)[field] = Json::parse(list);
}

// Computes the network's outputs for each sample or token, and adds them to the file on rank 0.
void add_outputs(const EvaluationRun& run, bool root, Outputs* outputs, Json* json) {
  train::Predictor predictor(run.context(), run.memory());
  std::vector<float> values = predictor.run();
  const int64_t samples = predictor.samples(), columns = predictor.columns();
  const int64_t tokens = predictor.tokens();
  std::vector<int64_t> extents = {samples, columns};
  if (tokens > 0) extents.insert(extents.begin() + 1, tokens);
  if (root) outputs->add(kOutputTensor, extents, std::move(values));
  (*json)["samples"] = samples;
  if (tokens > 0) (*json)["tokens"] = tokens;
  (*json)["outputs"] = columns;
  if (!root) return;
  add_names("classes", run.context().data.summary.class_names, outputs, json);
  add_names("files", run.context().data.eval->files(), outputs, json);
}

// Adds the losses of a language model's tokens, samples and documents.
void add_losses(const EvaluationRun& run, bool root, Outputs* outputs, Json* json) {
  train::TokenLosses pass(run.context(), run.memory());
  std::vector<float> losses = pass.run();
  const int64_t samples = pass.samples(), tokens = pass.tokens();
  (*json)["samples"] = samples;
  (*json)["tokens"] = tokens;
  if (!root) return;
  const std::vector<train::DocumentLoss> documents = pass.by_document(losses);
  std::vector<double> sums(static_cast<size_t>(samples)), counts(sums.size());
  std::vector<float> rows;
  double loss = 0, counted = 0;
  for (const train::DocumentLoss& document : documents) {
    const auto sample = static_cast<size_t>(document.sample);
    sums[sample] += document.loss;
    counts[sample] += static_cast<double>(document.counted);
    loss += document.loss;
    counted += static_cast<double>(document.counted);
    for (const double value : {static_cast<double>(document.sample),
                               static_cast<double>(document.document),
                               static_cast<double>(document.counted),
                               document.loss})
      rows.push_back(static_cast<float>(value));
  }
  outputs->add("token_loss", {samples, tokens}, std::move(losses));
  outputs->add("loss", {samples}, {sums.begin(), sums.end()});
  outputs->add("counted", {samples}, {counts.begin(), counts.end()});
  outputs->add("documents", {static_cast<int64_t>(documents.size()), 4}, std::move(rows));
  (*json)["documents"] = documents.size();
  (*json)["counted"] = counted;
  (*json)["loss"] = loss / std::max(counted, 1.0);
}

// `bad`: text about bad records, or empty.
void print_summary(const PredictOptions& options,
                   bool of_tokens,
                   const std::string& bad,
                   const Json& json) {
  const auto number = [&](const char* name) { return json[name].get<int64_t>(); };
  if (of_tokens) {
    fmt::print(
        "step {}: {} documents in {} samples, loss {:.4f} of {} tokens that count; in {}{}\n",
        number("step"),
        number("documents"),
        number("samples"),
        json["loss"].get<double>(),
        number("counted"),
        options.out,
        bad);
  } else {
    fmt::print(
        "step {}: {} outputs of each of {}{} samples are in {}, tensor '{}'{}\n",
        number("step"),
        number("outputs"),
        json.contains("tokens") ? fmt::format("{} tokens of each of ", number("tokens")) : "",
        number("samples"),
        options.out,
        kOutputTensor,
        bad);
  }
}

ExitCode predict(Session& session, const PredictOptions& options) {
  collectives::Communicator& communicator = session.communicator();
  const CommonOptions& common = options.evaluation.common;
  init_log(common.log_level, communicator.rank(), communicator.size());
  collectives::run_on_all(communicator,
                          [&] { require_result_path("--out", options.out, {".safetensors"}); });
  EvaluatedConfig evaluated =
      read_evaluated_config(session, options.evaluation, run::RunPurpose::kPredict);
  bool of_tokens = false;
  collectives::run_on_all(communicator, [&] {
    of_tokens = predicts_tokens(options, evaluated.opened.model->traits());
  });
  const EvaluationRun run(
      session, options.evaluation, std::move(evaluated), run::RunPurpose::kPredict);
  const bool root = communicator.rank() == 0;
  const checkpoint::CheckpointState& state = run.state();
  Outputs outputs;
  outputs.tell("lockstep_step", std::to_string(state.step));
  Json json;
  json["step"] = state.step;
  if (of_tokens) add_losses(run, root, &outputs, &json);
  if (!of_tokens || options.logits) add_outputs(run, root, &outputs, &json);
  collectives::run_on_root(communicator, [&] { outputs.write(options.out); });
  json["weights_hash"] = to_hex(state.weights_hash);
  const std::optional<int64_t> bad_records = count_bad_records(run.context());
  if (bad_records) json["bad_records"] = *bad_records;
  write_result(session.communicator(), common.json, json);
  if (root) print_summary(options, of_tokens, words_for(bad_records), json);
  return ExitCode::kOk;
}

}  // namespace

CommandSpec predict_command() {
  auto options = std::make_shared<PredictOptions>();
  CommandSpec command{
      .name = "predict",
      .help =
          "Write a network's outputs for each sample of the evaluation set, or "
          "of other data, as with --set data.labelled_text.eval=FILE. Texts and images in folders "
          "need no labels, tables no target",
      .also = "infer inference prediction"};
  add_evaluation_options(command, options->evaluation);
  command.add(
      "--out",
      &options->out,
      "The safetensors file to write: tensor 'output' (samples, outputs) f32, in the set's "
      "order, before softmax or sigmoid; for models that classify "
      "tokens (samples, tokens, outputs), with zeros for padding. If the data name classes, the "
      "names are a JSON list in the metadata, 'classes'; for images that are files, or members of "
      "tar files, 'files' is the list of the rows' names. For language models the losses: tensors "
      "'token_loss' (samples, tokens), 'loss' and 'counted' (samples), their sums and how many "
      "tokens count, and 'documents' (documents, 4): sample, number in it, counted, loss",
      {.required = true, .also = "output o out_file output_file outfile save output_dir"});
  command.add("--logits",
              &options->logits,
              "For language models: also write tensor 'output' (samples, tokens, vocabulary)");
  command.run = [options](Session& session) { return predict(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
