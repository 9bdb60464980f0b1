#pragma once
// The validated configuration of a run: plain structs that mirror run_config.proto field by field. Comments give the effect,
// unit and limits of each field; initialisers are the defaults. parse.h makes these from text; nothing below it sees protobuf.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

enum class Activation { kNone, kRelu, kGeluTanh, kGeluErf, kSilu, kTanh };
enum class Loss { kSoftmaxCrossEntropy, kBinaryCrossEntropy, kMeanSquaredError };

// Multilayer perceptron over flat feature vectors.
struct MlpConfig {
  std::vector<int64_t> hidden;  // widths of the hidden layers; each 1..1,000,000; empty: one linear layer
  Activation activation = Activation::kRelu;
  float dropout = 0;            // after each hidden activation; in [0, 1)
  Loss loss = Loss::kSoftmaxCrossEntropy;
  float label_smoothing = 0;    // in [0, 1); softmax cross-entropy only
  int64_t outputs = 0;          // 0: from the data (classes; 1 for binary cross-entropy; target columns)
};

// GPT-2: pre-norm decoder-only transformer with learned positions.
struct GptConfig {
  int64_t layers = 12;        // 1..1,000
  int64_t heads = 12;         // must divide width
  int64_t width = 768;        // 1..1,000,000
  int64_t context = 1024;     // T, tokens of a sample; 1..1,048,576
  int64_t vocabulary = 0;     // 0: from the data (256 for text)
  bool tied_head = true;      // output matrix = token embedding
  bool bias = true;           // biases in linear and norm layers
  float dropout = 0;          // on embeddings and on each residual branch; in [0, 1)
  float label_smoothing = 0;  // in [0, 1)
  Activation activation = Activation::kGeluTanh;
};

using ModelConfig = std::variant<MlpConfig, GptConfig>;

// Images in IDX files, plain or .gz (MNIST, Fashion-MNIST). x = (byte / 255 - mean) / std.
struct IdxConfig {
  std::string train_images, train_labels;  // required to train
  std::string eval_images, eval_labels;    // both or neither
  float mean = 0.5f;
  float std = 0.5f;                        // > 0
};

// A delimited text table. Columns are named by the header, or by number from 0 without one.
struct TableConfig {
  std::string train;                     // path; required
  std::string eval;                      // path; empty: eval_fraction of the training rows is held out
  std::string delimiter = ",";           // one character; "\t" for TSV
  bool header = true;
  std::string target;                    // required: column name or number
  std::vector<std::string> categorical;  // columns forced to one-hot; others are categorical if any value is not a number
  std::vector<std::string> numeric;      // columns forced to numeric: a non-number is a bad record
  std::vector<std::string> ignore;       // columns left out
  std::vector<std::string> missing{"", "?", "NA", "NaN", "nan"};  // spellings of a missing value
  float eval_fraction = 0;               // in [0, 1); rows held out by a fixed hash of the row number when eval is empty
};

// Text as bytes (vocabulary 256). A sample is `context` + 1 consecutive bytes.
struct TextConfig {
  std::string train;         // required; plain or .gz
  std::string eval;          // empty: the last eval_fraction of train is held out
  float eval_fraction = 0;   // in [0, 1)
};

// Token files: raw little-endian uint16 (nanoGPT) or llm.c's .bin (256 int32 header: magic 20240520, version 1, count).
struct TokensConfig {
  enum class Format { kRawUint16, kLlmc };
  std::string train;  // required
  std::string eval;
  Format format = Format::kRawUint16;
};

// Random inputs with learnable labels, for benchmarks: features for an MLP, tokens for a GPT.
struct SyntheticConfig {
  int64_t samples = 65536;  // 1..2^40; an epoch
  int64_t features = 784;   // MLP inputs, 1..10,000,000
  int64_t classes = 10;     // MLP classes or regression targets; GPT vocabulary; 1..10,000,000
};

enum class BadRecords { kFail, kSkip, kReplace };

struct DataConfig {
  std::variant<IdxConfig, TableConfig, TextConfig, TokensConfig, SyntheticConfig> source;
  std::string dir;                                // relative paths above are below this folder; empty: current folder
  bool shuffle = true;                            // order of training samples: random each epoch, or as stored
  BadRecords bad_records = BadRecords::kFail;     // fail; leave the record out; or put the next good record in its place
  float max_bad_fraction = 0.001f;                // in [0, 1]; above it the run fails whatever bad_records says
};

struct TrainConfig {
  int64_t global_batch = 128;  // samples a step over all ranks; a multiple of lanes
  int64_t lanes = 8;           // parts of a batch; a power of two, a multiple of the number of ranks; 1..4096
  int64_t steps = 0;           // length of the run; exactly one of steps and epochs is given
  double epochs = 0;
  int64_t hash_every = 0;      // weights_hash every so many steps; 0: only at checkpoints and at the end
  int64_t log_every = 10;      // a line every so many steps when not on a terminal; >= 1
  std::string init_from;       // a safetensors file with initial weights; empty: random
};

struct SgdConfig {
  float momentum = 0;      // in [0, 1)
  bool nesterov = false;   // needs momentum > 0
  float weight_decay = 0;  // >= 0; added to the gradient
};

// Adam adds weight_decay to the gradient (L2); AdamW shrinks the weights by lr * weight_decay.
struct AdamConfig {
  float beta1 = 0.9f;      // in [0, 1)
  float beta2 = 0.999f;    // in [0, 1)
  float epsilon = 1e-8f;   // > 0
  float weight_decay = 0;  // >= 0
  bool decoupled = false;  // true: AdamW
};

struct OptimizerConfig {
  std::variant<SgdConfig, AdamConfig> kind;
  float clip_norm = 0;               // > 0: gradients are scaled down to this global L2 norm
  bool decay_bias_and_norm = false;  // true: weight decay on biases and norm gains too
};

// Learning rate at step s (from 0), S = length of the run, w = warmup_steps, m = min_lr. For s < w: lr * (s + 1) / w. Then:
// constant lr | linear lr -> m | cosine lr -> m | step: lr * gamma^(milestones passed) | polynomial m + (lr - m)(1 - x)^power |
// warmup-stable-decay: lr, then over the last decay_steps linear to m.
struct ScheduleConfig {
  enum class Kind { kConstant, kLinear, kCosine, kStep, kPolynomial, kWarmupStableDecay };
  Kind kind = Kind::kConstant;
  float lr = 1e-3f;                 // > 0
  int64_t warmup_steps = 0;         // >= 0
  float min_lr = 0;                 // in [0, lr]
  std::vector<int64_t> milestones;  // increasing steps; STEP only, required there
  float gamma = 0.1f;               // > 0; STEP only
  float power = 2;                  // > 0; POLYNOMIAL only
  int64_t decay_steps = 0;          // WARMUP_STABLE_DECAY only, required there
};

struct EvalConfig {
  enum class Metric { kLoss, kAccuracy };
  int64_t every = 0;                // steps between evaluations; 0: only at the end (when there is an evaluation set)
  int64_t max_samples = 0;          // evaluate on the first so many samples; 0: all
  Metric best = Metric::kLoss;      // what decides which checkpoint is the best
  int64_t early_stop_patience = 0;  // stop after so many evaluations without improvement; 0: never
};

struct CheckpointConfig {
  int64_t every = 0;      // steps between checkpoints; 0: only at the end
  int64_t keep_last = 2;  // >= 1
  bool keep_best = true;  // also keep the best by eval.best
  bool at_end = true;
};

enum class Precision { kFp32, kBf16, kFp16 };

struct CommConfig {
  enum class Order { kTree, kFast };
  Order order = Order::kTree;  // TREE: same bits on any number of ranks; FAST: the library's own order
  double bucket_mib = 25;      // gradients exchanged at a time, MiB; (0, 1024]
  Precision wire_dtype = Precision::kFp32;
};

struct ExecutionConfig {
  int64_t threads = 0;           // compute threads a rank; 0: its share of the CPUs; 1..1024
  Precision precision = Precision::kFp32;
  int64_t prefetch_batches = 0;  // batches the loader keeps ready; 0: chosen by size; 1..1024
};

struct OutputConfig {
  std::string run_dir;      // empty: runs/<name>
  bool tensorboard = true;
  bool timeline = false;    // write timeline.json (Chrome trace)
};

struct RunConfig {
  std::string name = "run";  // letters, digits, '.', '_' and '-'
  uint64_t seed = 1;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  CommConfig comm;
  ExecutionConfig execution;
  OutputConfig output;
};

}  // namespace lockstep
