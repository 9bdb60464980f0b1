// BERT and RoBERTa. Query, key and value of the folder are one tensor of the model.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/huggingface/family.h"
#include "models/huggingface/labels.h"
#include "models/huggingface/open_config.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::huggingface {
namespace {

namespace fs = std::filesystem;

// How a sentence-transformers folder pools the tokens of a text into one vector.
enum class FolderPooling { kUnspecified, kFirstToken, kMean, kOther };

constexpr const char* kPoolingFile = "1_Pooling/config.json";
// Prefix of the boolean fields that select a pooling; one or more of them are true.
const std::string kMode = "pooling_mode_";
constexpr const char* kMeanTokens = "mean_tokens";
constexpr const char* kFirst = "cls_token";

// Reads 1_Pooling/config.json. Returns kUnspecified if the folder has no such file, and kOther for
// unsupported poolings, such as the maximum or several at once. Throws ConfigError if the file is
// not a JSON object.
FolderPooling read_pooling(const fs::path& folder) {
  const fs::path path = folder / kPoolingFile;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return FolderPooling::kUnspecified;
  const Json json = read_json(path);
  if (json.kind() != Json::Kind::kObject) throw ConfigError("{}: not a JSON object", path.string());
  std::vector<std::string> modes;
  for (const std::string& name : json.names()) {
    const Json& value = json.at(name);
    if (name.starts_with(kMode) && value.kind() == Json::Kind::kBoolean && value.get<bool>())
      modes.push_back(name.substr(kMode.size()));
  }
  if (modes.size() != 1) return FolderPooling::kOther;
  if (modes[0] == kMeanTokens) return FolderPooling::kMean;
  return modes[0] == kFirst ? FolderPooling::kFirstToken : FolderPooling::kOther;
}

// "the mean of all tokens"
const char* describe(FolderPooling pooling) {
  switch (pooling) {
    case FolderPooling::kUnspecified: return "not specified";
    case FolderPooling::kFirstToken: return "the first token";
    case FolderPooling::kMean: return "the mean of all tokens";
    case FolderPooling::kOther: break;
  }
  return "of an unsupported kind";
}

// Writes 1_Pooling/config.json for vectors of `width` features. Throws IoError.
void write_pooling(const fs::path& folder, int64_t width, bool mean) {
  Json json = Json::object();
  json["word_embedding_dimension"] = width;
  json[kMode + kFirst] = !mean;
  json[kMode + kMeanTokens] = mean;
  json[kMode + "max_tokens"] = false;
  json[kMode + "mean_sqrt_len_tokens"] = false;
  const fs::path path = folder / kPoolingFile;
  fs::create_directory(path.parent_path());
  write_file_atomically(path, json.dump({.indent = 2}) + "\n");
}

// Writes what makes the folder one of sentence-transformers: a transformer, pooling and division by
// the length, which does not change cosines. Throws IoError.
void write_modules(const fs::path& folder, const BertConfig& bert) {
  Json modules = Json::array({});
  const std::pair<const char*, const char*> parts[] = {
      {"", "Transformer"}, {"1_Pooling", "Pooling"}, {"2_Normalize", "Normalize"}};
  for (const auto& [path, type] : parts) {
    Json part = Json::object();
    part["idx"] = static_cast<int64_t>(modules.size());
    part["name"] = std::to_string(modules.size());
    part["path"] = path;
    part["type"] = fmt::format("sentence_transformers.models.{}", type);
    modules.push_back(part);
  }
  write_file_atomically(folder / "modules.json", modules.dump({.indent = 2}) + "\n");
  Json length = Json::object();
  length["max_seq_length"] = bert.context;
  length["do_lower_case"] = false;  // the tokenizer's part
  write_file_atomically(folder / "sentence_bert_config.json", length.dump({.indent = 2}) + "\n");
}

using Task = BertConfig::Task;
using Layout = BertConfig::Layout;

const BertConfig& config_of(const ModelConfig& model) { return std::get<BertConfig>(model); }

bool is_roberta(const BertConfig& bert) { return bert.layout == Layout::kRoberta; }

// Unused rows at the start of the table of positions.
int64_t unused_positions(const BertConfig& bert) {
  return is_roberta(bert) ? bert.padding_token + 1 : 0;
}

constexpr const char* kProblem = "problem_type";

bool has_one_label(ConfigFields& fields) { return read_labels(fields, kDefaultLabels) == 1; }

// As in transformers, one label without a problem_type means regression. Unsupported problems are
// read as a model without a head, for hidden states.
Task sequence_task(ConfigFields& fields) {
  const bool one = has_one_label(fields);
  const std::string problem =
      fields.text(kProblem, one ? "regression" : "single_label_classification");
  if (problem == "regression") return Task::kSequenceValues;
  if (problem != "single_label_classification" || one) return Task::kHiddenStates;
  return Task::kSequenceClasses;
}

bool is_for_sequences(ConfigFields& fields) {
  const std::vector<std::string> architectures = fields.texts("architectures");
  return !architectures.empty() && architectures[0].ends_with("ForSequenceClassification");
}

// The task of the first architecture. If its head is not supported: hidden states.
Task task_of(ConfigFields& fields) {
  const std::vector<std::string> architectures = fields.texts("architectures");
  const std::string first = architectures.empty() ? "" : architectures[0];
  if (ends_with_any(first, {"ForMaskedLM", "ForPreTraining"})) return Task::kMaskedTokens;
  if (first.ends_with("ForTokenClassification")) return Task::kTokenClasses;
  if (is_for_sequences(fields)) return sequence_task(fields);
  return Task::kHiddenStates;
}

bool is_sequence_task(const BertConfig& bert) {
  return bert.task == Task::kSequenceClasses || bert.task == Task::kSequenceValues;
}

// Whether the classifier reads the mean of a text's tokens. transformers has no such network, so a
// folder describes the body alone and has the classifier's tensors beside it.
bool has_mean(const BertConfig& bert) {
  return is_sequence_task(bert) && bert.pooling == BertConfig::Pooling::kMean;
}

const char* architecture_of(const BertConfig& bert) {
  if (has_mean(bert)) return "Model";
  switch (bert.task) {
    case Task::kMaskedTokens: return "ForMaskedLM";
    case Task::kTokenClasses: return "ForTokenClassification";
    case Task::kHiddenStates:
    case Task::kEmbeddings: return "Model";
    case Task::kSequenceClasses:
    case Task::kSequenceValues: break;
  }
  return "ForSequenceClassification";
}

class Bert final : public Family {
 public:
  std::vector<std::string> types() const override { return {"bert", "roberta"}; }
  const char* section() const override { return BertConfig::kName; }
  std::string base_prefix(const ModelConfig& model) const override {
    return is_roberta(config_of(model)) ? "roberta." : "bert.";
  }

  ModelConfig read(ConfigFields& fields) const override {
    BertConfig bert;
    const bool roberta = fields.text("model_type", "bert") == "roberta";
    bert.layout = roberta ? Layout::kRoberta : Layout::kBert;
    bert.layers = fields.integer("num_hidden_layers", 12);
    bert.heads = fields.integer("num_attention_heads", 12);
    bert.width = fields.integer("hidden_size", 768);
    bert.mlp_width = fields.integer("intermediate_size", 3072);
    bert.vocabulary = fields.integer("vocab_size", roberta ? 50265 : 30522);
    bert.segments = fields.integer("type_vocab_size", 2);
    bert.padding_token = fields.integer("pad_token_id", roberta ? 1 : 0);
    bert.context = fields.integer("max_position_embeddings", 512) - unused_positions(bert);
    if (bert.context < 1)
      fields.refuse("max_position_embeddings", "a number above pad_token_id + 1");
    bert.activation = fields.activation("hidden_act", Activation::kGeluErf);
    bert.norm_epsilon = static_cast<float>(fields.number("layer_norm_eps", 1e-12));
    bert.dropout = static_cast<float>(fields.number("hidden_dropout_prob", 0.1));
    bert.attention_dropout = static_cast<float>(fields.number("attention_probs_dropout_prob", 0.1));
    bert.task = task_of(fields);
    if (bert.task != Task::kMaskedTokens && bert.task != Task::kHiddenStates)
      bert.classes = read_labels(fields, kDefaultLabels);
    refuse_others(fields, bert);
    return bert;
  }

  void check_task(ConfigFields& fields) const override {
    if (!is_for_sequences(fields) || sequence_task(fields) != Task::kHiddenStates) return;
    const std::string known = has_one_label(fields)
                                  ? "null or regression, because there is one label"
                                  : "null, single_label_classification or regression";
    fields.refuse(kProblem, known + ", or any value if the config sets model.bert.task");
  }

  // The pooling of sentence-transformers, if no head of transformers pools the tokens.
  void read_other_files(const std::filesystem::path& folder, ModelConfig& model) const override {
    BertConfig& bert = std::get<BertConfig>(model);
    if (!is_sequence_task(bert) && read_pooling(folder) == FolderPooling::kMean)
      bert.pooling = BertConfig::Pooling::kMean;
  }
  std::vector<std::string> notes_on_other_files(const std::filesystem::path& folder,
                                                const ModelConfig& model) const override {
    const BertConfig& bert = config_of(model);
    const FolderPooling pooling = read_pooling(folder);
    const bool pools = is_sequence_task(bert) || bert.task == Task::kEmbeddings;
    if (!pools || pooling == FolderPooling::kUnspecified) return {};
    return {fmt::format("{}: pooling is {}; model.bert.pooling is {}",
                        (folder / kPoolingFile).string(),
                        describe(pooling),
                        bert.pooling == BertConfig::Pooling::kMean ? "MEAN" : "FIRST_TOKEN")};
  }
  void write_other_files(const ModelConfig& model,
                         const FolderOptions& /*options*/,
                         const Json& /*config*/,
                         const std::filesystem::path& folder) const override {
    const BertConfig& bert = config_of(model);
    const bool embeds = bert.task == Task::kEmbeddings;
    if (has_mean(bert) || embeds)
      write_pooling(folder, bert.width, bert.pooling == BertConfig::Pooling::kMean);
    if (embeds) write_modules(folder, bert);
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& /*slices*/,
             Json& config) const override {
    const BertConfig& bert = config_of(model);
    const bool roberta = is_roberta(bert);
    config["model_type"] = roberta ? "roberta" : "bert";
    config["architectures"] =
        Json::array({Json(std::string(roberta ? "Roberta" : "Bert") + architecture_of(bert))});
    config["num_hidden_layers"] = bert.layers;
    config["num_attention_heads"] = bert.heads;
    config["hidden_size"] = bert.width;
    config["intermediate_size"] = bert.mlp_width;
    config["vocab_size"] = bert.vocabulary;
    config["type_vocab_size"] = bert.segments;
    config["max_position_embeddings"] = bert.context + unused_positions(bert);
    if (roberta) config["pad_token_id"] = bert.padding_token;  // has no effect in BERT
    write_activation("hidden_act", bert.activation, config);
    config["layer_norm_eps"] = shortest(bert.norm_epsilon);
    config["hidden_dropout_prob"] = shortest(bert.dropout);
    config["classifier_dropout"] = Json();
    config["attention_probs_dropout_prob"] = shortest(bert.attention_dropout);
    config["tie_word_embeddings"] = true;
    write_task(bert, config);
  }

  std::vector<TensorPart> parts(const ModelConfig& model, const std::string& name) const override {
    const BertConfig& bert = config_of(model);
    TensorPart part{without_prefix(bert, name)};
    std::vector<TensorPart> parts =
        split_tensor(part.name, ".self.qkv.", {{".self.query."}, {".self.key."}, {".self.value."}});
    if (!parts.empty()) return parts;
    if (name.ends_with(".position_embeddings.weight"))
      part.stored_rows = bert.context + unused_positions(bert);
    return {part};
  }

  bool is_head(const std::string& name) const override {
    return name.starts_with("classifier.") || name.starts_with("bert.pooler.") ||
           name.starts_with("cls.") || name.starts_with("lm_head.") || name == "logit_scale";
  }
  bool has_row_per_class(const std::string& name) const override {
    return name.starts_with("classifier.") && !name.starts_with("classifier.dense.");
  }

  // position_ids are the numbers 0, 1, ... that older versions stored. The pooler is a layer of
  // other tasks.
  bool is_ignored_tensor(const std::string& name) const override {
    return name.ends_with("embeddings.position_ids") || name.starts_with("pooler.") ||
           name.find(".pooler.dense.") != std::string::npos;
  }

  // The earliest files have TensorFlow's names for norms.
  std::string older_name(const std::string& name) const override {
    for (const auto& [now, before] : {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"),
                                      std::pair(".LayerNorm.bias", ".LayerNorm.beta")}) {
      if (name.ends_with(now))
        return name.substr(0, name.size() - std::string(now).size()) + before;
    }
    return "";
  }

  std::string tied_weight(const ModelConfig& model) const override {
    if (config_of(model).task != Task::kMaskedTokens) return "";
    return base_prefix(model) + "embeddings.word_embeddings.weight";
  }
  std::string tied_name(const ModelConfig& model, const std::string& name) const override {
    const BertConfig& bert = config_of(model);
    if (bert.task != Task::kMaskedTokens) return "";
    const std::string head = is_roberta(bert) ? "lm_head." : "cls.predictions.";
    if (name == head + "decoder.bias") return head + "bias";
    return name == head + "decoder.weight" ? tied_weight(model) : "";
  }

 private:
  // A network without a head has names without the prefix that separates body and head.
  std::string without_prefix(const BertConfig& bert, const std::string& name) const {
    const std::string prefix = base_prefix(bert);
    const bool headless = bert.task == Task::kHiddenStates || bert.task == Task::kEmbeddings;
    const bool drops = headless && name.starts_with(prefix);
    return drops ? name.substr(prefix.size()) : name;
  }

  // Rejects values of other fields that change what the network computes.
  static void refuse_others(ConfigFields& fields, const BertConfig& bert) {
    if (fields.text("position_embedding_type", "absolute") != "absolute")
      fields.refuse("position_embedding_type", "absolute");
    for (const char* decoder : {"is_decoder", "add_cross_attention"}) {
      if (fields.boolean(decoder, false)) fields.refuse(decoder, "false");
    }
    if (!fields.boolean("tie_word_embeddings", true) && bert.task == Task::kMaskedTokens)
      fields.refuse("tie_word_embeddings", "true");
    if (static_cast<float>(fields.number("classifier_dropout", bert.dropout)) != bert.dropout)
      fields.refuse("classifier_dropout", "null, or the value of hidden_dropout_prob");
    fields.ignore(
        "chunk_size_feed_forward directionality num_labels pooler_fc_size "
        "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
        "pooler_type");
  }

  static void write_task(const BertConfig& bert, Json& config) {
    const bool of_classes = bert.task == Task::kSequenceClasses || bert.task == Task::kTokenClasses;
    const bool of_values = bert.task == Task::kSequenceValues;
    if (bert.task == Task::kSequenceClasses && bert.classes == 1 && !has_mean(bert))
      throw ConfigError(
          "model.bert.classes: value is 1; Hugging Face's folders with one output have task "
          "SEQUENCE_VALUES");
    if (of_values || of_classes) write_labels(bert.classes, config);
    if (has_mean(bert)) {
      if (config.contains("problem_type")) config["problem_type"] = Json();
    } else if (of_values) {
      config["problem_type"] = "regression";
    } else if (config.contains("problem_type")) {
      config["problem_type"] =
          bert.task == Task::kSequenceClasses ? Json("single_label_classification") : Json();
    }
  }
};

}  // namespace

const Family& bert_family() {
  static const Bert family;
  return family;
}

}  // namespace lockstep::huggingface
