#pragma once
// The validated configuration of a run: plain structs that mirror run_config.proto field by field.
// Comments give the effect, unit and limits of each field; initialisers are the defaults. parse.h
// makes these from text; nothing below it sees protobuf.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

enum class Activation { kNone, kRelu, kGeluTanh, kGeluErf, kSilu, kTanh };
enum class Loss { kSoftmaxCrossEntropy, kBinaryCrossEntropy, kMeanSquaredError };

// Multilayer perceptron over flat feature vectors.
struct MlpConfig {
  std::vector<int64_t> hidden;  // widths, each 1..1,000,000; empty: one linear layer
  Activation activation = Activation::kRelu;
  float dropout = 0;  // after each hidden activation; in [0, 1); 0 without them
  Loss loss = Loss::kSoftmaxCrossEntropy;
  float label_smoothing = 0;  // in [0, 1); softmax cross-entropy only
  // 0: from the data (classes; 1 for binary cross-entropy; target columns); 0..10,000,000, and at
  // most 1 for binary cross-entropy.
  int64_t outputs = 0;
  bool operator==(const MlpConfig&) const = default;
};

// GPT-2: pre-norm decoder-only transformer with learned positions.
struct GptConfig {
  int64_t layers = 12;        // 1..1,000
  int64_t heads = 12;         // must divide width
  int64_t width = 768;        // 1..1,000,000
  int64_t context = 1024;     // T, tokens of a sample; 1..1,048,576
  int64_t vocabulary = 0;     // 0: from the data (256 for text); else at least that, <= 10,000,000
  bool tied_head = true;      // output matrix = token embedding
  bool bias = true;           // biases in linear and norm layers
  float dropout = 0;          // on embeddings and on each residual branch; in [0, 1)
  float label_smoothing = 0;  // in [0, 1)
  Activation activation = Activation::kGeluTanh;
  bool operator==(const GptConfig&) const = default;
};

// Residual networks (He et al. 2015) on images. Depths 18, 34, 50 and 101 are ImageNet's, stride in
// the 3x3 convolution ("v1.5"), tensors named as torchvision's; 20, 32, 56 and 110 are CIFAR's, of
// three stages of 16, 32 and 64 channels.
struct ResnetConfig {
  enum class Shortcut { kProjection, kPadded };
  enum class Stem { kImagenet, kCifar };
  int64_t depth = 50;  // 18, 34, 50, 101; 20, 32, 56, 110
  // Where the extents change. PROJECTION: 1x1 convolution and norm. PADDED: every second pixel with
  // channels of zeros, no parameters; CIFAR's depths only.
  Shortcut shortcut = Shortcut::kProjection;
  // The first layers. IMAGENET: 7x7 convolution with stride 2 and a 3x3 maximum with stride 2.
  // CIFAR: 3x3 convolution with stride 1, for small images; CIFAR's depths always have it.
  Stem stem = Stem::kImagenet;
  bool zero_init_gamma = false;  // last norm of each block begins with gain 0
  // Training normalises with the statistics of the whole global batch instead of each lane's. All
  // lanes of a rank then run together: each has its own activations and gradients in memory.
  bool sync_batch_norm = false;
  float label_smoothing = 0;  // in [0, 1)
  int64_t classes = 0;        // 0: from the data; else at least that, <= 10,000,000
  bool operator==(const ResnetConfig&) const = default;
};

// VGG with 16 layers (Simonyan and Zisserman 2014), tensors named as torchvision's.
struct VggConfig {
  int64_t depth = 16;            // 16
  bool batch_norm = false;       // a norm after every convolution
  bool sync_batch_norm = false;  // see ResnetConfig; needs batch_norm
  float dropout = 0.5f;          // in the classifier; in [0, 1)
  float label_smoothing = 0;
  int64_t classes = 0;
  bool operator==(const VggConfig&) const = default;
};

// AlexNet (Krizhevsky 2014, one tower), tensors named as torchvision's.
struct AlexnetConfig {
  bool local_response_norm = false;  // after the first two layers, as in 2012
  float dropout = 0.5f;
  float label_smoothing = 0;
  int64_t classes = 0;
  bool operator==(const AlexnetConfig&) const = default;
};

// LeNet-5 (LeCun et al. 1998): two convolutions, two pools, three linear layers.
struct LenetConfig {
  enum class Pooling { kMax, kAverage };
  Activation activation = Activation::kRelu;
  Pooling pooling = Pooling::kMax;
  float label_smoothing = 0;
  int64_t classes = 0;
  bool operator==(const LenetConfig&) const = default;
};

using ModelConfig =
    std::variant<MlpConfig, GptConfig, ResnetConfig, VggConfig, AlexnetConfig, LenetConfig>;

// Images in IDX files, plain or .gz (MNIST, Fashion-MNIST). x = (byte / 255 - mean) / std.
struct IdxConfig {
  std::string train_images, train_labels;  // required to train
  std::string eval_images, eval_labels;    // both or neither
  float mean = 0.5f;
  float std = 0.5f;  // > 0
  bool operator==(const IdxConfig&) const = default;
};

// A delimited text table. Columns are named by the header, or by number from 0 without one.
struct TableConfig {
  std::string train;            // path; required
  std::string eval;             // path; empty: eval_fraction of the training rows is held out
  std::string delimiter = ",";  // one character; "\t" for TSV
  bool header = true;
  std::string target;  // required: column name or number
  // Columns forced to one-hot; others are categorical if any value is not a number.
  std::vector<std::string> categorical;
  std::vector<std::string> numeric;  // columns forced to numeric: a non-number is a bad record
  std::vector<std::string> ignore;   // columns left out
  // Spellings of a missing value. Giving none means these; there is always at least one.
  std::vector<std::string> missing{"", "?", "NA", "NaN", "nan"};
  float eval_fraction = 0;  // in [0, 1); rows held out, by a hash of the row number; 0 with eval
  bool operator==(const TableConfig&) const = default;
};

// Text as bytes (vocabulary 256). A sample is `context` + 1 consecutive bytes.
struct TextConfig {
  std::string train;        // required; plain or .gz
  std::string eval;         // empty: the last eval_fraction of train is held out
  float eval_fraction = 0;  // in [0, 1); 0 with eval
  bool operator==(const TextConfig&) const = default;
};

// Token files: raw little-endian uint16 (nanoGPT) or llm.c's .bin (256 int32 header: magic
// 20240520, version 1, count).
struct TokensConfig {
  enum class Format { kRawUint16, kLlmc };
  std::string train;  // required
  std::string eval;
  Format format = Format::kRawUint16;
  bool operator==(const TokensConfig&) const = default;
};

// Random inputs with learnable labels, for benchmarks: features for an MLP, tokens for a GPT,
// images for a model of images.
struct SyntheticConfig {
  int64_t samples = 65536;  // 1..2^40; an epoch
  int64_t features = 784;   // MLP inputs, 1..10,000,000
  int64_t classes = 10;     // MLP classes or regression targets; GPT vocabulary; 1..10,000,000
  int64_t height = 32;      // of images, 1..65,536, like the width
  int64_t width = 32;
  int64_t channels = 3;  // of images, 1..16
  bool operator==(const SyntheticConfig&) const = default;
};

// CIFAR-10 or CIFAR-100 in the binary layout, plain or .gz: records of a label (CIFAR-100: coarse
// and fine) and 32 x 32 pixels, one plane per colour.
struct CifarConfig {
  // Files, read one after the other; in names, here and below, "{1..5}" stands for five and '*' for
  // any characters (but a file may not match together with its .gz copy). train is required.
  std::vector<std::string> train, eval;
  int64_t classes = 10;  // 10 or 100: which of the two it is
  bool coarse = false;   // CIFAR-100 only: the 20 coarse labels
  bool operator==(const CifarConfig&) const = default;
};

// JPEG and PNG files in one folder per class: the class is the number of its folder in the order of
// names. Other files are counted and passed over.
struct ImageFolderConfig {
  std::string train;  // folder; required
  std::string eval;   // folder; its classes must be among those of train
  bool operator==(const ImageFolderConfig&) const = default;
};

// Tar files in the manner of WebDataset: a sample is the neighbouring members that share a name up
// to its first dot, an image (.jpg, .jpeg, .png) and its class number as text (.cls).
struct TarShardsConfig {
  // Files; "name-{000..012}.tar" stands for thirteen of them. train is required.
  std::vector<std::string> train, eval;
  int64_t classes = 0;  // 0: one more than the largest number in train; <= 10,000,000
  // Samples that are shuffled among each other; the shards are shuffled as a whole. 1..2^30.
  int64_t shuffle_buffer = 8192;
  bool operator==(const TarShardsConfig&) const = default;
};

// Files made by `lockstep data pack`.
struct RecordsConfig {
  std::string train;  // required
  std::string eval;   // may lack the last classes of train
  bool operator==(const RecordsConfig&) const = default;
};

// How images reach the model: (size, size) pixels, bytes that the model's first op normalises to
// (x / 255 - mean[c]) / std[c].
struct ImageConfig {
  // Side of the square, 1..8192. 0: as stored, for sources whose images all have one size.
  int64_t size = 0;
  // Evaluation, and training without random_resized_crop: the shorter side becomes so long before
  // the centre is cut out; `size`..8192. 0: 8/7 of the size; where all images are stored with that
  // size, they are left alone.
  int64_t resize = 0;
  // One number, or one per channel. Empty: 0.485 0.456 0.406 and 0.229 0.224 0.225 for 3 channels,
  // else 0.5. With data.idx: its own mean and std.
  std::vector<float> mean, std;  // std > 0
  bool operator==(const ImageConfig&) const = default;
};

// A rectangle of random area and proportions becomes the whole picture (Szegedy et al., "Going
// deeper with convolutions").
struct RandomResizedCropConfig {
  std::vector<float> scale{0.08f, 1.0f};         // share of the area, from and to; in (0, 1]
  std::vector<float> ratio{3.0f / 4, 4.0f / 3};  // width / height, from and to; > 0
  bool operator==(const RandomResizedCropConfig&) const = default;
};

// Black borders are added and a picture of the old size is cut out anywhere.
struct PadAndCropConfig {
  int64_t padding = 4;  // pixels on each side, 1..4096
  bool operator==(const PadAndCropConfig&) const = default;
};

// Factors drawn from [1 - x, 1 + x], but not below 0; the hue turns by a share of the circle drawn
// from [-hue, hue]. In random order. 3 channels only.
struct ColourJitterConfig {
  float brightness = 0, contrast = 0, saturation = 0;  // >= 0
  float hue = 0;                                       // in [0, 0.5]
  bool operator==(const ColourJitterConfig&) const = default;
};

// What happens to training images, in this order. All randomness is a pure function of
// (seed, epoch, sample).
struct AugmentConfig {
  std::optional<RandomResizedCropConfig> random_resized_crop;
  std::optional<PadAndCropConfig> pad_and_crop;
  float horizontal_flip = 0;  // probability, in [0, 1]
  std::optional<ColourJitterConfig> colour_jitter;
  bool operator==(const AugmentConfig&) const = default;
};

enum class BadRecords { kFail, kSkip, kReplace };

struct DataConfig {
  std::variant<IdxConfig,
               TableConfig,
               TextConfig,
               TokensConfig,
               SyntheticConfig,
               CifarConfig,
               ImageFolderConfig,
               TarShardsConfig,
               RecordsConfig>
      source;
  std::string dir;      // relative paths above are below this folder; empty: current folder
  bool shuffle = true;  // order of training samples: random each epoch, or as stored
  // Fail; leave the record out; or put the next good record (at the end the last one) in its place.
  // An image that cannot be decoded is known as such only when it is read: then SKIP too takes the
  // next good one instead.
  BadRecords bad_records = BadRecords::kFail;
  // In [0, 1]; with more of a data set's records bad the run fails whatever bad_records says. Of
  // images that cannot be decoded each process counts those that it has read since it began.
  float max_bad_fraction = 0.001f;
  ImageConfig image;  // images only, like augment
  AugmentConfig augment;
  int64_t decode_threads = 0;  // that read samples; 0: execution.threads for JPEG and PNG, else 1
  bool operator==(const DataConfig&) const = default;
};

// Numbers of steps, here and below, are at most 10^11.
struct TrainConfig {
  int64_t global_batch = 128;  // samples a step over all ranks; a multiple of lanes; 1..2^24
  int64_t lanes = 8;  // parts of a batch; power of two; multiple of the number of ranks; 1..4096
  // Length of the run: exactly one of steps and epochs is above 0.
  int64_t steps = 0;
  double epochs = 0;       // at most 10^6
  int64_t hash_every = 0;  // steps between weights_hash; 0: only at checkpoints and at the end
  int64_t log_every = 0;   // steps from line to line where there is no terminal; 0: by time
  std::string init_from;   // a safetensors file with initial weights; empty: random
  // Above 0: a moving average of the weights, e = ema_decay e + (1 - ema_decay) w after every
  // update, which evaluations of the run use; checkpoints keep it beside the weights, and `lockstep
  // eval`, predict and export take it with --average. In [0, 1).
  float ema_decay = 0;
  // Above 0: mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization"), for models of
  // images. Every step each lane draws a share from Beta(mixup, mixup), and sample i of its n
  // becomes, in picture and target, that share of itself and the rest of sample n - 1 - i; the
  // larger share is its own. The loss of training is that of the mixed batch; evaluations never
  // mix. In [0, 100]; above 0 it needs 2 samples or more in a lane.
  float mixup = 0;
  bool operator==(const TrainConfig&) const = default;
};

struct SgdConfig {
  float momentum = 0;      // in [0, 1)
  bool nesterov = false;   // needs momentum > 0
  float weight_decay = 0;  // >= 0; added to the gradient
  bool operator==(const SgdConfig&) const = default;
};

// Adam adds weight_decay to the gradient (L2); AdamW shrinks the weights by lr * weight_decay.
struct AdamConfig {
  float beta1 = 0.9f;      // in [0, 1)
  float beta2 = 0.999f;    // in [0, 1)
  float epsilon = 1e-8f;   // > 0
  float weight_decay = 0;  // >= 0
  bool decoupled = false;  // true: AdamW
  bool operator==(const AdamConfig&) const = default;
};

// LARS (You, Gitman and Ginsburg 2017): momentum SGD with a rate of its own for every tensor, lr
// times ||w|| / (||g|| + weight_decay ||w||) times trust_coefficient. Here and in LAMB, tensors
// without weight decay (biases and norm gains, but for decay_bias_and_norm) take lr as it is, and
// so do those where either norm is 0.
struct LarsConfig {
  float momentum = 0.9f;             // in [0, 1)
  float weight_decay = 0;            // >= 0; added to the gradient
  float trust_coefficient = 0.001f;  // > 0
  float epsilon = 1e-8f;             // >= 0; added to the sum of norms
  bool operator==(const LarsConfig&) const = default;
};

// LAMB (You et al. 2019): every tensor's step is Adam's direction plus weight_decay w, times lr
// ||w|| / ||direction||.
struct LambConfig {
  float beta1 = 0.9f;      // in [0, 1)
  float beta2 = 0.999f;    // in [0, 1)
  float epsilon = 1e-6f;   // > 0
  float weight_decay = 0;  // >= 0
  bool operator==(const LambConfig&) const = default;
};

struct OptimizerConfig {
  std::variant<SgdConfig, AdamConfig, LarsConfig, LambConfig> kind;
  float clip_norm = 0;               // > 0: gradients are scaled down to this global L2 norm
  bool decay_bias_and_norm = false;  // true: weight decay on biases and norm gains too
  bool operator==(const OptimizerConfig&) const = default;
};

// Learning rate at step s (from 0); S = length of the run, w = warmup_steps, m = min_lr.
// For s < w: lr * (s + 1) / w. Then, by kind:
//   CONSTANT lr | LINEAR lr -> m | COSINE lr -> m | STEP lr * gamma^(milestones passed)
//   POLYNOMIAL m + (lr - m)(1 - x)^power
//   WARMUP_STABLE_DECAY lr, then over the last decay_steps linear to m
// A field of another kind is refused, not ignored.
struct ScheduleConfig {
  enum class Kind { kConstant, kLinear, kCosine, kStep, kPolynomial, kWarmupStableDecay };
  Kind kind = Kind::kConstant;
  float lr = 1e-3f;                 // > 0
  int64_t warmup_steps = 0;         // >= 0; below the length of the run
  float min_lr = 0;                 // in [0, lr]; 0 for CONSTANT and STEP
  std::vector<int64_t> milestones;  // increasing steps; STEP only, required there
  float gamma = 0.1f;               // > 0; STEP only
  float power = 2;                  // > 0; POLYNOMIAL only
  int64_t decay_steps = 0;          // WARMUP_STABLE_DECAY only, required there
  bool operator==(const ScheduleConfig&) const = default;
};

struct EvalConfig {
  enum class Metric { kLoss, kAccuracy };
  // Steps between evaluations; above 0 needs an evaluation set. 0: at the end, when there is one.
  int64_t every = 0;
  int64_t max_samples = 0;      // evaluate on the first so many samples; 0: all; <= 2^40
  Metric best = Metric::kLoss;  // decides which checkpoint is the best; LOSS for squared error
  // Stop after so many evaluations without improvement; needs every > 0. 0: never.
  int64_t early_stop_patience = 0;
  bool operator==(const EvalConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every = 0;      // steps between checkpoints; 0: only at the end
  int64_t keep_last = 2;  // 1..1,000,000
  bool keep_best = true;  // also keep the best by eval.best
  bool at_end = true;
  bool operator==(const CheckpointConfig&) const = default;
};

enum class Precision { kFp32, kBf16, kFp16 };

struct CommConfig {
  enum class Order { kTree, kFast };
  // TREE: same bits on any number of ranks; FAST: the library's own order.
  Order order = Order::kTree;
  // Gradients exchanged at a time, MiB; [0, 1024]. 0: on CPUs in ZeRO stages 0 and 1 what a cost
  // model chooses by the size of the model (usual_bucket_mib() in runtime/plan), else 25. The same
  // bits. As many are under way as four of the largest have, or in ZeRO stages 0 and 1 up to 100
  // MiB, and up to 48: what a rank receives them in is as large.
  double bucket_mib = 0;
  // true: a run of several ranks that starts anew first trains a few steps with each of some sizes,
  // bucket_mib among them, and keeps to the fastest; a resumed one keeps to that. The trials leave
  // nothing but RUN_DIR/buckets.json.
  bool tune_buckets = false;
  // What gradients are rounded to before they are added to those of other lanes, and every sum of
  // them, on any number of ranks alike: BF16 and FP16 halve what of them is sent. Each addition is
  // in fp32. With FP16 the loss is scaled as with execution.precision FP16.
  Precision wire_dtype = Precision::kFp32;
  // With wire_dtype BF16 and ZeRO stage 0 or 1: what rounding takes from a sum of gradients is
  // kept, and added to the same sum of the next step.
  bool error_feedback = false;
  // With error_feedback or power_sgd_rank: lanes are summed exactly in so many groups of
  // neighbouring ones; what compression takes is kept for each group and, where sums are rounded,
  // each sum of groups. A power of two from the number of ranks to train.lanes, which 0 stands for.
  // Other groups, other bits.
  int64_t residual_groups = 0;
  // Above 0, in ZeRO stage 0: gradients that are matrices travel as two factors with so many
  // columns (PowerSGD), where these are not half as long; what they lack is kept for the next step.
  // For slow networks: the weights are other ones.
  int64_t power_sgd_rank = 0;
  // On CPUs and in TREE order: the ranks of a node sum each other's gradients where they lie and
  // keep one copy of the parameters, or in ZeRO stage 0, where all are on one node, write the sums
  // to each other. false: all that is sent, as where nodes cannot share, in stage 3, and in stage 0
  // with power_sgd_rank.
  bool shared_memory = true;
  // What the ranks share out: 0, nothing; 1, the optimizer's moments and the master weights; 2, the
  // gradients too, at the price of sending them for every lane of a rank; 3, the parameters too,
  // which are then brought for every forward and backward pass of a lane. The same bits.
  int64_t zero_stage = 1;
  enum class Transport { kAuto, kMpi, kTcp };
  // What carries messages of CPUs, also of one host, where an MPI launcher started the ranks. MPI:
  // the MPI library. TCP: Lockstep's own connections, which move bytes both ways at once while
  // ranks compute. AUTO: TCP on several hosts where the library is Open MPI and has nothing but TCP
  // itself, else MPI. Ranks started without MPI always talk TCP: AUTO or TCP.
  Transport transport = Transport::kAuto;
  bool operator==(const CommConfig&) const = default;
};

struct ExecutionConfig {
  int64_t threads = 0;  // compute threads a rank; 0: its share of the CPUs; 1..1024
  // Of parameters and activations. BF16 and FP16, on a GPU only, keep fp32 master weights and
  // moments and sum gradients in fp32; FP16 scales the loss.
  Precision precision = Precision::kFp32;
  int64_t prefetch_batches = 0;  // batches the loader keeps ready; 0: chosen by size; 1..1024
  bool tf32 = false;  // FP32 on a GPU: products round their inputs to 10 bits of mantissa
  // FP32 on CPUs: linear layers, and convolutions of enough channels, multiply each float as the
  // sum of three bfloat16 numbers: as accurate, other bits, and faster on processors with AMX.
  bool bf16x3 = false;
  enum class Recompute { kNothing, kBlocks };
  // BLOCKS: the backward pass computes a transformer block's activations again instead of keeping
  // them: less memory, a third more work, the same bits.
  Recompute recompute = Recompute::kNothing;
  // With FP16, here or in comm.wire_dtype: the first factor of the loss, 1..2^24; halved, and the
  // step skipped, when a gradient overflows; doubled after so many steps without.
  float loss_scale = 65536;
  int64_t loss_scale_growth_steps = 2000;  // 1 or more
  bool operator==(const ExecutionConfig&) const = default;
};

struct OutputConfig {
  std::string run_dir;  // empty: runs/<name>
  bool tensorboard = true;
  bool timeline = false;  // write timeline.json (Chrome trace of all ranks)
  bool operator==(const OutputConfig&) const = default;
};

struct RunConfig {
  // 1..100 letters, digits, '.', '_' and '-'; does not begin with '.' or '-'.
  std::string name = "run";
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
  bool operator==(const RunConfig&) const = default;
};

// Whether gradients are FP16 where they are computed or summed, so that the loss is scaled.
inline bool has_fp16_gradients(const RunConfig& config) {
  return config.execution.precision == Precision::kFp16 ||
         config.comm.wire_dtype == Precision::kFp16;
}

// Groups of lanes whose sums leave residuals; 0: none do.
inline int residual_groups(const RunConfig& config) {
  if (!config.comm.error_feedback && config.comm.power_sgd_rank == 0) return 0;
  const int64_t groups = config.comm.residual_groups;
  return static_cast<int>(groups > 0 ? groups : config.train.lanes);
}

}  // namespace lockstep
