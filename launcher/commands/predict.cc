// lockstep predict CONFIG --checkpoint DIR --out FILE.csv
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
#include "launcher/run/predicted_masks.h"
#include "launcher/run/predicted_rows.h"
#include "launcher/run/summary.h"
#include "launcher/run/task_report_text.h"
#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/class_names.h"
#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/config/task.h"
#include "runtime/train/evaluation/prediction_scores.h"
#include "runtime/train/evaluation/predictor.h"
#include "runtime/train/evaluation/token_losses.h"

namespace lockstep::launcher {
namespace {

struct PredictOptions {
  EvaluationOptions evaluation;
  std::string out;
  bool logits = false;  // for language models: also write the outputs
};

constexpr char kOutput[] = "output", kTokenLoss[] = "token_loss";  // tensors

// Whether the model predicts tokens. Throws ConfigError if --logits is given and it does not, or if
// the file would be a table.
bool predicts_tokens(const PredictOptions& options, const config::ModelTraits& model) {
  const bool of_tokens = model.scored_kind() == config::TargetKind::kTokens;
  if (options.logits && !of_tokens)
    throw ConfigError("--logits: allowed only with models that predict tokens; the model is {}",
                      model.section);
  if (options.logits && is_table(prediction_format(options.out)))
    throw ConfigError("--logits: allowed only with --out .npy or .safetensors; --out is '{}'",
                      options.out);
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
  void write_all(const std::filesystem::path& path) const {
    checkpoint::write_safetensors(path, tensors_, metadata_);
  }
  // Writes one tensor as .npy.
  void write_array(const std::filesystem::path& path, const std::string& name) const {
    const auto found = std::ranges::find(tensors_, name, &checkpoint::F32Tensor::name);
    write_npy(path, found->shape, found->values);
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

// One prediction: what the file, the JSON and the terminal get. Values are on rank 0 only.
class Prediction {
 public:
  // Collective.
  Prediction(const PredictOptions& options, const EvaluationRun& run, bool root, bool of_tokens)
      : options_(options),
        run_(run),
        data_(run.context().data),
        root_(root),
        of_tokens_(of_tokens),
        format_(prediction_format(options.out)) {
    outputs_.tell("lockstep_step", std::to_string(run.state().step));
    json_["step"] = run.state().step;
    if (of_tokens) add_losses();
    if (!of_tokens || options.logits) add_outputs();
    json_["weights_hash"] = to_hex(run.state().weights_hash);
  }

  Json& json() { return json_; }

  // Writes the file, whole or not at all.
  void write() const {
    replace_file(options_.out, [&](const std::filesystem::path& unfinished) {
      if (format_ == PredictionFormat::kSafetensors)
        outputs_.write_all(unfinished);
      else if (format_ == PredictionFormat::kNpy)
        outputs_.write_array(unfinished, options_.logits || !of_tokens_ ? kOutput : kTokenLoss);
      else if (of_tokens_)
        write_table(documents_, unfinished, format_);
      else
        write_table({.predictions = found_,
                     .dataset = *data_.eval,
                     .kind = kind(),
                     .class_names = names_,
                     .target_name = data_.summary.target_name,
                     .blank = blank(),
                     .row = row()},
                    unfinished,
                    format_);
    });
  }

  // `bad`: text about bad records, or empty.
  void print(const std::string& bad) const {
    if (of_tokens_) return print_losses(bad);
    if (scores_) print_scores();
    if (options_.evaluation.report && !scores_)
      log_warn("--report: the data have no labels to compare with, so there is no report");
    if (is_table(format_)) {
      fmt::print("step {}: predictions for {} samples are in {}{}\n",
                 number("step"),
                 found_.samples,
                 options_.out,
                 bad);
      return;
    }
    fmt::print(
        "step {}: {} outputs of each of {}{} samples are in {}{}{}\n",
        number("step"),
        number("outputs"),
        found_.tokens > 0 ? fmt::format("{} {}s of each of ", found_.tokens, row()) : "",
        found_.samples,
        options_.out,
        format_ == PredictionFormat::kSafetensors ? fmt::format(", tensor '{}'", kOutput) : "",
        bad);
  }

 private:
  // The network's outputs for each sample or token, and the metrics if there are targets.
  void add_outputs() {
    train::Predictor predictor(run_.context(), run_.memory(), /*with_targets=*/!of_tokens_);
    found_ = predictor.run();
    json_["samples"] = found_.samples;
    if (found_.tokens > 0) json_[fmt::format("{}s", row())] = found_.tokens;
    json_["outputs"] = found_.columns;
    if (!root_) return;
    names_ = data_.summary.class_names;
    if (names_.empty())
      names_ = checkpoint::kept_class_names(run_.state(), options_.evaluation.checkpoint);
    add_names("classes", names_, &outputs_, &json_);
    add_names("files", data_.eval->files(), &outputs_, &json_);
    add_scores();
    if (is_table(format_)) return;
    std::vector<int64_t> extents = {found_.samples, found_.columns};
    if (found_.tokens > 0) extents.insert(extents.begin() + 1, found_.tokens);
    outputs_.add(kOutput, extents, std::move(found_.outputs));
  }

  void add_scores() {
    scores_ = train::score_predictions(run_.context().model,
                                       run_.context().config.train,
                                       data_.summary.target_std,
                                       found_,
                                       names_);
    if (!scores_) return;
    json_["labelled"] = scores_->evaluation.samples;
    train::each_metric(scores_->evaluation,
                       run_.context().model,
                       [&](const std::string& name, double value) { json_[name] = value; });
    if (options_.evaluation.report) json_["report"] = to_json(scores_->report, names_);
  }

  // The losses of a language model's tokens, samples and documents.
  void add_losses() {
    train::TokenLosses pass(run_.context(), run_.memory());
    std::vector<float> losses = pass.run();
    const int64_t samples = pass.samples(), tokens = pass.tokens();
    json_["samples"] = samples;
    json_["tokens"] = tokens;
    if (!root_) return;
    documents_ = pass.by_document(losses);
    std::vector<double> sums(static_cast<size_t>(samples)), counts(sums.size());
    std::vector<float> rows;
    double loss = 0, counted = 0;
    for (const train::DocumentLoss& document : documents_) {
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
    outputs_.add(kTokenLoss, {samples, tokens}, std::move(losses));
    outputs_.add("loss", {samples}, {sums.begin(), sums.end()});
    outputs_.add("counted", {samples}, {counts.begin(), counts.end()});
    outputs_.add("documents", {static_cast<int64_t>(documents_.size()), 4}, std::move(rows));
    json_["documents"] = documents_.size();
    json_["counted"] = counted;
    json_["loss"] = loss / std::max(counted, 1.0);
  }

  PredictedKind kind() const {
    switch (run_.context().model.scored_kind()) {
      case config::TargetKind::kTranscript: return PredictedKind::kTranscripts;
      case config::TargetKind::kClass:
      case config::TargetKind::kDistribution:
      case config::TargetKind::kPixelClasses:
      case config::TargetKind::kTokenClasses: return PredictedKind::kClasses;
      case config::TargetKind::kYesNo:
        return found_.columns == 1 ? PredictedKind::kYesNo : PredictedKind::kSeveralYesNo;
      case config::TargetKind::kNone:
      case config::TargetKind::kValues:
      case config::TargetKind::kTokens:
      case config::TargetKind::kSimilarity:
      case config::TargetKind::kPreference:
      case config::TargetKind::kNamed: return PredictedKind::kValues;
    }
    LOCKSTEP_CHECK(false);
  }

  // What a row is if a sample has several.
  const char* row() const {
    const bool token = run_.context().model.scored_kind() != config::TargetKind::kPixelClasses;
    return token ? "token" : "position";
  }

  int32_t blank() const {
    const auto& transcript = run_.context().model.transcript;
    return transcript ? static_cast<int32_t>(transcript->blank) : 0;
  }

  int64_t number(const char* name) const { return json_[name].get<int64_t>(); }

  void print_scores() const {
    const train::Evaluation& evaluation = scores_->evaluation;
    const bool of_samples = found_.tokens == 0 || run_.context().model.transcript;
    const bool all = of_samples && evaluation.samples == found_.samples;
    fmt::print("step {}: evaluation loss {:.6f}{} on {} {}{}\n",
               number("step"),
               evaluation.loss,
               train::words_for(evaluation, run_.context().model),
               evaluation.samples,
               all ? "" : "labelled ",
               of_samples ? "samples" : "tokens");
    if (options_.evaluation.report) fmt::print("{}", to_text(scores_->report, names_));
  }

  void print_losses(const std::string& bad) const {
    fmt::print(
        "step {}: {} documents in {} samples, loss {:.4f} of {} tokens that count; in {}{}\n",
        number("step"),
        number("documents"),
        number("samples"),
        json_["loss"].get<double>(),
        number("counted"),
        options_.out,
        bad);
  }

  const PredictOptions& options_;
  const EvaluationRun& run_;
  const data::OpenedData& data_;
  bool root_, of_tokens_;
  PredictionFormat format_;
  Outputs outputs_;
  Json json_;
  train::Predictions found_;
  std::vector<std::string> names_;  // of classes
  std::optional<train::PredictionScores> scores_;
  std::vector<train::DocumentLoss> documents_;
};

// Classes of pixels become a mask for each sample.
void predict_masks(Session& session, const PredictOptions& options, const EvaluationRun& run) {
  Json json = write_masks(run, options.out);
  json["step"] = run.state().step;
  json["weights_hash"] = to_hex(run.state().weights_hash);
  const std::optional<int64_t> bad_records = count_bad_records(run.context());
  if (bad_records) json["bad_records"] = *bad_records;
  write_result(session.communicator(), options.evaluation.common.json, json);
  if (session.communicator().rank() == 0)
    fmt::print("step {}: {}{}\n",
               run.state().step,
               text_of_masks(json, options.out),
               words_for(bad_records));
}

ExitCode predict(Session& session, const PredictOptions& options) {
  collectives::Communicator& communicator = session.communicator();
  const CommonOptions& common = options.evaluation.common;
  init_log(common.log_level, communicator.rank(), communicator.size());
  EvaluatedConfig evaluated =
      read_evaluated_config(session, options.evaluation, run::RunPurpose::kPredict);
  const bool of_pixels =
      evaluated.opened.model->traits().target_kind() == config::TargetKind::kPixelClasses &&
      evaluated.opened.model->traits().wants_images();
  bool of_tokens = false;
  collectives::run_on_all(communicator, [&] {
    if (of_pixels)
      require_mask_folder(options.out);
    else
      require_result_path("--out", options.out, prediction_endings());
    of_tokens = predicts_tokens(options, evaluated.opened.model->traits());
    check_report(options.evaluation.report, evaluated.opened.model->traits());
  });
  const EvaluationRun run(
      session, options.evaluation, std::move(evaluated), run::RunPurpose::kPredict);
  if (of_pixels) {
    predict_masks(session, options, run);
    return ExitCode::kOk;
  }
  const bool root = communicator.rank() == 0;
  Prediction prediction(options, run, root, of_tokens);
  collectives::run_on_root(communicator, [&] { prediction.write(); });
  const std::optional<int64_t> bad_records = count_bad_records(run.context());
  if (bad_records) prediction.json()["bad_records"] = *bad_records;
  write_result(session.communicator(), common.json, prediction.json());
  if (root) prediction.print(words_for(bad_records));
  return ExitCode::kOk;
}

}  // namespace

CommandSpec predict_command() {
  auto options = std::make_shared<PredictOptions>();
  CommandSpec command{
      .name = "predict",
      .help =
          "Write a network's predictions for each sample of the evaluation set, or "
          "of other data, as with --set data.labelled_text.eval=FILE. Texts and images in folders "
          "need no labels, tables no target; if they are there, print the metrics",
      .also = "infer inference prediction"};
  add_evaluation_options(command, options->evaluation);
  command.add(
      "--out",
      &options->out,
      "The file to write, in the format of its ending, with rows in the set's order. "
      ".csv, .tsv, .jsonl: a row for each sample with 'file' or 'row', 'label' if the data have "
      "it, 'predicted', 'probability' and the probability of each class, or with the value; for "
      "classes of tokens a row for each word or token, for those of positions one for each; for "
      "language models one for each document, with its loss. "
      ".npy: the outputs before softmax or sigmoid, (samples, outputs) or (samples, tokens, "
      "outputs) f32, with zeros for padding; for language models the losses (samples, tokens). "
      ".safetensors: the same as tensor 'output', and in the metadata the JSON lists 'classes', if "
      "the data name them, and 'files', if samples are files; for language models tensors "
      "'token_loss' (samples, tokens), 'loss' and 'counted' (samples), their sums and how many "
      "tokens count, and 'documents' (documents, 4): sample, number in it, counted, loss. "
      "For classes of pixels: a new folder for a grey PNG mask of each image, in the size in which "
      "the network sees it",
      {.required = true, .also = "output o out_file output_file outfile save output_dir"});
  command.add("--logits",
              &options->logits,
              "For language models: also write tensor 'output' (samples, tokens, vocabulary); as "
              ".npy instead of the losses");
  command.run = [options](Session& session) { return predict(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
