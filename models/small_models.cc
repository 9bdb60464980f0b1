#include "models/small_models.h"

#include "runtime/graph/ops/attention.h"

namespace lockstep::models {

namespace {

void add_mlps(std::vector<SmallModel>& models) {
  const ModelIo labels = {.features = 61, .classes = 13, .target_columns = 0};
  for (const auto& [name, activation] : {std::pair("relu", Activation::kRelu),
                                         std::pair("gelu_tanh", Activation::kGeluTanh),
                                         std::pair("gelu_erf", Activation::kGeluErf),
                                         std::pair("silu", Activation::kSilu),
                                         std::pair("tanh", Activation::kTanh)}) {
    MlpConfig mlp;
    mlp.hidden = {72, 39};
    mlp.activation = activation;
    mlp.dropout = 0.2f;
    mlp.label_smoothing = 0.1f;
    mlp.outputs = 13;
    models.push_back({std::string("mlp ") + name, mlp, labels, 37});
  }
  for (const auto& [name, loss] : {std::pair("binary", Loss::kBinaryCrossEntropy),
                                   std::pair("squared error", Loss::kMeanSquaredError),
                                   std::pair("absolute error", Loss::kMeanAbsoluteError),
                                   std::pair("huber", Loss::kHuber),
                                   std::pair("distribution", Loss::kSoftCrossEntropy)}) {
    MlpConfig mlp;
    mlp.hidden = {64};
    mlp.loss = loss;
    mlp.outputs = 3;
    models.push_back({std::string("mlp ") + name, mlp, {61, 0, 3}, 37});
  }
}

void add_language_models(std::vector<SmallModel>& models) {
  GptConfig gpt;
  gpt.layers = 2;
  gpt.heads = 3;
  gpt.width = 96;
  gpt.context = 65;
  gpt.vocabulary = 131;
  gpt.dropout = 0.1f;
  models.push_back({"gpt odd", gpt, {0, 131, 0}, 3});
  gpt.heads = 2;
  gpt.width = 128;
  gpt.context = 128;
  gpt.vocabulary = 5003;
  gpt.layers = 1;
  gpt.tied_head = false;
  gpt.bias = false;
  models.push_back({"gpt heads of 64", gpt, {0, 5003, 0}, 2});
  gpt.heads = 1;
  gpt.width = 64;
  gpt.context = 1024;
  gpt.vocabulary = 257;
  models.push_back({"gpt of 1024 tokens", gpt, {0, 257, 0}, 1});
}

void add_llamas(std::vector<SmallModel>& models) {
  LlamaConfig llama;
  llama.layers = 2;
  llama.heads = 6;
  llama.kv_heads = 2;
  llama.head_size = 18;
  llama.width = 96;
  llama.mlp_width = 130;
  llama.context = 65;
  llama.vocabulary = 131;
  llama.qkv_bias = llama.output_bias = llama.mlp_bias = true;
  models.push_back({"llama odd", llama, {0, 131, 0}, 3});
  llama.head_size = 64;
  llama.context = 128;
  llama.layers = 1;
  llama.tied_head = false;
  llama.rope_scaling = LlamaConfig::RopeScaling::kLlama3;
  llama.rope_factor = 8;
  llama.rope_original_context = 64;
  models.push_back({"llama heads of 64", llama, {0, 131, 0}, 2});
  llama.qk_norm = true;
  llama.sliding_window = 40;
  models.push_back({"llama of norms and windows", llama, {0, 131, 0}, 2});
  SmallModel packed = {"llama of documents", llama, {0, 131, 0}, 2};
  packed.packed = true;
  packed.loss_rows = 48;
  models.push_back(packed);
  llama.head_size = 16;
  llama.context = 65;
  SmallModel padded = {"llama of padding and windows", llama, {0, 131, 0}, 4};
  padded.packed = padded.padded = true;
  models.push_back(padded);
  SmallModel answers = {"llama of pairs of answers", llama, {0, 131, 0}, 2};
  answers.answers = answers.padded = true;
  answers.loss_rows = 48;
  models.push_back(answers);
  llama.head = DecoderHead::kReward;
  answers = {"llama of rewards", llama, {0, 131, 0}, 2};
  answers.answers = answers.padded = true;
  models.push_back(answers);
}

// GPT-J's block, and text encoders. All rows of a text sample are random ids below `classes`, so
// vocabulary and segments must be at least that.
void add_encoders(std::vector<SmallModel>& models) {
  GptConfig gptj;
  gptj.layers = 2;
  gptj.heads = 3;
  gptj.width = 96;
  gptj.context = 65;
  gptj.vocabulary = 131;
  gptj.positions = GptConfig::Positions::kRotary;
  gptj.rotary_size = 10;
  gptj.parallel_block = true;
  gptj.attention_bias = false;
  gptj.tied_head = false;
  gptj.head_bias = true;
  SmallModel rows = {"gpt-j", gptj, {0, 131, 0}, 3};
  models.push_back(rows);
  rows.name = "gpt-j, rows of logits";
  rows.loss_rows = 48;
  models.push_back(rows);
  BertConfig bert;
  bert.layers = 2;
  bert.heads = 3;
  bert.width = 96;
  bert.mlp_width = 130;
  bert.context = 65;
  bert.vocabulary = 61;
  bert.segments = 61;
  bert.dropout = 0.1f;
  bert.attention_dropout = 0.2f;
  models.push_back({"bert", bert, {0, 61, 0}, 3});
  BertConfig padded = bert;
  padded.layers = 1;
  padded.attention_dropout = 0;
  models.push_back({"bert of padding", padded, {0, 61, 0}, 4});
  models.back().padded = true;
  bert.layout = BertConfig::Layout::kRoberta;
  bert.task = BertConfig::Task::kSequenceClasses;
  bert.classes = 61;
  models.push_back({"roberta of classes", bert, {0, 61, 0}, 3});
  bert.task = BertConfig::Task::kSequenceValues;
  bert.classes = 5;
  models.push_back({"roberta of values", bert, {0, 61, 5}, 3});
  bert.pooling = BertConfig::Pooling::kMean;
  models.push_back({"roberta of values, of the mean of tokens", bert, {0, 61, 5}, 3});
  bert.task = BertConfig::Task::kEmbeddings;
  const ModelIo pairs = {.vocabulary = 61, .texts = 2};
  models.push_back(
      {"roberta of pairs of three lanes", bert, pairs, 3, graph::Purpose::kTraining, 1, 3});
  bert.layers = 1;
  models.push_back({"roberta of pairs evaluated", bert, pairs, 3, graph::Purpose::kEvaluation});
}

void add_image_models(std::vector<SmallModel>& models) {
  ModelIo images = {.classes = 10};
  images.height = 12;
  images.width = 10;
  images.channels = 3;
  images.mean = {0.49f, 0.48f, 0.45f};
  images.std = {0.25f, 0.24f, 0.26f};
  ResnetConfig resnet;
  resnet.depth = 8;  // one block in each stage
  resnet.classes = 10;
  models.push_back({"resnet projected", resnet, images, 3});
  resnet.shortcut = ResnetConfig::Shortcut::kPadded;
  models.push_back(
      {"resnet padded, images mixed", resnet, images, 4, graph::Purpose::kTraining, 0.625f});
  models.push_back({"resnet evaluated", resnet, images, 5, graph::Purpose::kEvaluation});
  resnet.sync_batch_norm = true;
  models.push_back({"resnet of three lanes", resnet, images, 3, graph::Purpose::kTraining, 1, 3});
  MobilenetV2Config mobilenet;
  mobilenet.classes = 10;
  images.height = 40;
  images.width = 33;
  models.push_back({"mobilenet_v2", mobilenet, images, 2});
  VitConfig vit;
  vit.layers = 2;
  vit.heads = 2;
  vit.width = 36;
  vit.mlp_width = 70;
  vit.patch = 4;
  vit.classes = 10;
  images.height = 12;
  images.width = 16;
  models.push_back({"vit", vit, images, 3});
  DitConfig dit;
  dit.layers = 2;
  dit.heads = 2;
  dit.width = 36;
  dit.patch = 4;
  dit.classes = 10;
  models.push_back({"dit", dit, images, 3});
}

}  // namespace

graph::Graph SmallModel::build(graph::GraphOptions options) const {
  options.packed = packed;
  options.loss_rows = loss_rows;
  if (answers) options.preference = PreferenceConfig{};
  graph::Graph graph = build_model(config, io, lane_batch, options);
  if (padded) graph::set_one_document(graph);
  return graph;
}

std::vector<SmallModel> small_models() {
  std::vector<SmallModel> models;
  add_mlps(models);
  add_language_models(models);
  add_llamas(models);
  add_encoders(models);
  add_image_models(models);
  return models;
}

}  // namespace lockstep::models
