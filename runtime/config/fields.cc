#include "runtime/config/fields.h"

#include <optional>
#include <variant>

namespace lockstep {
namespace {

// Far above any run, and low enough that steps * global_batch stays within int64.
constexpr int64_t kMostSteps = 100'000'000'000;
constexpr int64_t kMostBatch = int64_t{1} << 24;
constexpr int64_t kMostSamples = int64_t{1} << 40;
constexpr int64_t kMostFeatures = 10'000'000;
constexpr int64_t kMostImageSide = 8192;
constexpr double kMostEpochs = 1e6;
constexpr double kMostMixup = 100;  // shares are a half then, give or take 0.04

constexpr IntegerLimit kStepCount{0, kMostSteps};

void visit_fields(FieldVisitor& v, MlpConfig& c) {
  v.field("hidden", c.hidden, IntegerLimit{1, 1'000'000});
  v.field("activation", c.activation);
  v.field("dropout", c.dropout, kFractionBelowOne);
  v.field("loss", c.loss);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("outputs", c.outputs, IntegerLimit{0, kMostFeatures});
}

void visit_fields(FieldVisitor& v, GptConfig& c) {
  v.field("layers", c.layers, IntegerLimit{1, 1000});
  v.field("heads", c.heads, IntegerLimit{1, 1'000'000});
  v.field("width", c.width, IntegerLimit{1, 1'000'000});
  v.field("context", c.context, IntegerLimit{1, 1'048'576});
  v.field("vocabulary", c.vocabulary, IntegerLimit{0, kMostFeatures});
  v.field("tied_head", c.tied_head);
  v.field("bias", c.bias);
  v.field("dropout", c.dropout, kFractionBelowOne);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("activation", c.activation);
}

void visit_fields(FieldVisitor& v, ResnetConfig& c) {
  v.field("depth", c.depth, IntegerLimit{18, 110});
  v.field("shortcut", c.shortcut);
  v.field("stem", c.stem);
  v.field("zero_init_gamma", c.zero_init_gamma);
  v.field("sync_batch_norm", c.sync_batch_norm);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("classes", c.classes, IntegerLimit{0, kMostFeatures});
}

void visit_fields(FieldVisitor& v, VggConfig& c) {
  v.field("depth", c.depth, IntegerLimit{16, 16});
  v.field("batch_norm", c.batch_norm);
  v.field("sync_batch_norm", c.sync_batch_norm);
  v.field("dropout", c.dropout, kFractionBelowOne);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("classes", c.classes, IntegerLimit{0, kMostFeatures});
}

void visit_fields(FieldVisitor& v, AlexnetConfig& c) {
  v.field("local_response_norm", c.local_response_norm);
  v.field("dropout", c.dropout, kFractionBelowOne);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("classes", c.classes, IntegerLimit{0, kMostFeatures});
}

void visit_fields(FieldVisitor& v, LenetConfig& c) {
  v.field("activation", c.activation);
  v.field("pooling", c.pooling);
  v.field("label_smoothing", c.label_smoothing, kFractionBelowOne);
  v.field("classes", c.classes, IntegerLimit{0, kMostFeatures});
}

void visit_fields(FieldVisitor& v, IdxConfig& c) {
  v.field("train_images", c.train_images);
  v.field("train_labels", c.train_labels);
  v.field("eval_images", c.eval_images);
  v.field("eval_labels", c.eval_labels);
  v.field("mean", c.mean, kFinite);
  v.field("std", c.std, kPositive);
}

void visit_fields(FieldVisitor& v, TableConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
  v.field("delimiter", c.delimiter);
  v.field("header", c.header);
  v.field("target", c.target);
  v.field("categorical", c.categorical);
  v.field("numeric", c.numeric);
  v.field("ignore", c.ignore);
  v.field("missing", c.missing);
  v.field("eval_fraction", c.eval_fraction, kFractionBelowOne);
}

void visit_fields(FieldVisitor& v, TextConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
  v.field("eval_fraction", c.eval_fraction, kFractionBelowOne);
}

void visit_fields(FieldVisitor& v, TokensConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
  v.field("format", c.format);
}

void visit_fields(FieldVisitor& v, SyntheticConfig& c) {
  v.field("samples", c.samples, IntegerLimit{1, kMostSamples});
  v.field("features", c.features, IntegerLimit{1, kMostFeatures});
  v.field("classes", c.classes, IntegerLimit{1, kMostFeatures});
  v.field("height", c.height, IntegerLimit{1, 65536});
  v.field("width", c.width, IntegerLimit{1, 65536});
  v.field("channels", c.channels, IntegerLimit{1, 16});
}

void visit_fields(FieldVisitor& v, CifarConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
  v.field("classes", c.classes, IntegerLimit{10, 100});
  v.field("coarse", c.coarse);
}

void visit_fields(FieldVisitor& v, ImageFolderConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
}

void visit_fields(FieldVisitor& v, TarShardsConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
  v.field("classes", c.classes, IntegerLimit{0, kMostFeatures});
  v.field("shuffle_buffer", c.shuffle_buffer, IntegerLimit{1, int64_t{1} << 30});
}

void visit_fields(FieldVisitor& v, RecordsConfig& c) {
  v.field("train", c.train);
  v.field("eval", c.eval);
}

void visit_fields(FieldVisitor& v, ImageConfig& c) {
  v.field("size", c.size, IntegerLimit{0, kMostImageSide});
  v.field("resize", c.resize, IntegerLimit{0, kMostImageSide});
  v.field("mean", c.mean, kFinite);
  v.field("std", c.std, kPositive);
}

void visit_fields(FieldVisitor& v, RandomResizedCropConfig& c) {
  v.field("scale", c.scale, RealLimit{0, 1, /*low_open=*/true});
  v.field("ratio", c.ratio, kPositive);
}

void visit_fields(FieldVisitor& v, PadAndCropConfig& c) {
  v.field("padding", c.padding, IntegerLimit{1, 4096});
}

void visit_fields(FieldVisitor& v, ColourJitterConfig& c) {
  v.field("brightness", c.brightness, kNotNegative);
  v.field("contrast", c.contrast, kNotNegative);
  v.field("saturation", c.saturation, kNotNegative);
  v.field("hue", c.hue, RealLimit{0, 0.5});
}

// A section that may be left out altogether.
template <typename Section>
void visit_optional(FieldVisitor& v, const char* name, std::optional<Section>& section) {
  const auto below = v.option(name, section.has_value());
  if (below == nullptr) return;
  if (!section) section.emplace();
  visit_fields(*below, *section);
  below->finish();
}

void visit_fields(FieldVisitor& v, AugmentConfig& c) {
  visit_optional(v, "random_resized_crop", c.random_resized_crop);
  visit_optional(v, "pad_and_crop", c.pad_and_crop);
  v.field("horizontal_flip", c.horizontal_flip, kFraction);
  visit_optional(v, "colour_jitter", c.colour_jitter);
}

void visit_fields(FieldVisitor& v, SgdConfig& c) {
  v.field("momentum", c.momentum, kFractionBelowOne);
  v.field("nesterov", c.nesterov);
  v.field("weight_decay", c.weight_decay, kNotNegative);
}

// `decoupled` has no field: it is what tells the option adamw from adam.
void visit_fields(FieldVisitor& v, AdamConfig& c) {
  v.field("beta1", c.beta1, kFractionBelowOne);
  v.field("beta2", c.beta2, kFractionBelowOne);
  v.field("epsilon", c.epsilon, kPositive);
  v.field("weight_decay", c.weight_decay, kNotNegative);
}

void visit_fields(FieldVisitor& v, LarsConfig& c) {
  v.field("momentum", c.momentum, kFractionBelowOne);
  v.field("weight_decay", c.weight_decay, kNotNegative);
  v.field("trust_coefficient", c.trust_coefficient, kPositive);
  v.field("epsilon", c.epsilon, kNotNegative);
}

void visit_fields(FieldVisitor& v, LambConfig& c) {
  v.field("beta1", c.beta1, kFractionBelowOne);
  v.field("beta2", c.beta2, kFractionBelowOne);
  v.field("epsilon", c.epsilon, kPositive);
  v.field("weight_decay", c.weight_decay, kNotNegative);
}

template <typename Option>
bool same_option(const Option&, const Option&) {
  return true;
}
bool same_option(const AdamConfig& a, const AdamConfig& b) { return a.decoupled == b.decoupled; }

// One member of a oneof, which is one alternative of `variant`; `initial` is the alternative with
// its defaults.
template <typename Option, typename Variant>
void visit_option(FieldVisitor& v, const char* name, Variant& variant, const Option& initial) {
  const Option* held = std::get_if<Option>(&variant);
  const auto below = v.option(name, held != nullptr && same_option(*held, initial));
  if (below == nullptr) return;
  Option option = held != nullptr && same_option(*held, initial) ? *held : initial;
  visit_fields(*below, option);
  below->finish();
  variant = option;
}

void visit_fields(FieldVisitor& v, ModelConfig& c) {
  visit_option(v, "mlp", c, MlpConfig{});
  visit_option(v, "gpt", c, GptConfig{});
  visit_option(v, "resnet", c, ResnetConfig{});
  visit_option(v, "vgg", c, VggConfig{});
  visit_option(v, "alexnet", c, AlexnetConfig{});
  visit_option(v, "lenet", c, LenetConfig{});
  v.require_one_of("model");
}

// A section that most configs have no use for: written only where it says something.
template <typename Section>
void visit_unless_default(FieldVisitor& v, const char* name, Section& section) {
  const auto below = v.option(name, !(section == Section{}));
  if (below == nullptr) return;
  visit_fields(*below, section);
  below->finish();
}

void visit_fields(FieldVisitor& v, DataConfig& c) {
  visit_option(v, "idx", c.source, IdxConfig{});
  visit_option(v, "table", c.source, TableConfig{});
  visit_option(v, "text", c.source, TextConfig{});
  visit_option(v, "tokens", c.source, TokensConfig{});
  visit_option(v, "synthetic", c.source, SyntheticConfig{});
  visit_option(v, "cifar", c.source, CifarConfig{});
  visit_option(v, "image_folder", c.source, ImageFolderConfig{});
  visit_option(v, "tar_shards", c.source, TarShardsConfig{});
  visit_option(v, "records", c.source, RecordsConfig{});
  v.require_one_of("source");
  v.field("dir", c.dir);
  v.field("shuffle", c.shuffle);
  v.field("bad_records", c.bad_records);
  v.field("max_bad_fraction", c.max_bad_fraction, kFraction);
  visit_unless_default(v, "image", c.image);
  visit_unless_default(v, "augment", c.augment);
  v.field("decode_threads", c.decode_threads, IntegerLimit{0, 1024});
}

void visit_fields(FieldVisitor& v, TrainConfig& c) {
  v.field("global_batch", c.global_batch, IntegerLimit{1, kMostBatch});
  v.field("lanes", c.lanes, IntegerLimit{1, 4096});
  v.field("steps", c.steps, kStepCount);
  v.field("epochs", c.epochs, RealLimit{0, kMostEpochs});
  v.field("hash_every", c.hash_every, kStepCount);
  v.field("log_every", c.log_every, kStepCount);
  v.field("init_from", c.init_from);
  v.field("ema_decay", c.ema_decay, kFractionBelowOne);
  v.field("mixup", c.mixup, RealLimit{0, kMostMixup});
}

void visit_fields(FieldVisitor& v, OptimizerConfig& c) {
  visit_option(v, "sgd", c.kind, SgdConfig{});
  visit_option(v, "adam", c.kind, AdamConfig{.decoupled = false});
  visit_option(v, "adamw", c.kind, AdamConfig{.decoupled = true});
  visit_option(v, "lars", c.kind, LarsConfig{});
  visit_option(v, "lamb", c.kind, LambConfig{});
  v.require_one_of("kind");
  v.field("clip_norm", c.clip_norm, kNotNegative);
  v.field("decay_bias_and_norm", c.decay_bias_and_norm);
}

void visit_fields(FieldVisitor& v, ScheduleConfig& c) {
  using Kind = ScheduleConfig::Kind;
  v.field("kind", c.kind);
  v.field("lr", c.lr, kPositive);
  v.field("warmup_steps", c.warmup_steps, kStepCount);
  v.field("min_lr", c.min_lr, kNotNegative);
  v.field("milestones", c.milestones, IntegerLimit{1, kMostSteps});
  if (v.applies("gamma", c.kind == Kind::kStep, "only with schedule.kind STEP")) {
    v.field("gamma", c.gamma, kPositive);
  }
  if (v.applies("power", c.kind == Kind::kPolynomial, "only with schedule.kind POLYNOMIAL")) {
    v.field("power", c.power, kPositive);
  }
  v.field("decay_steps", c.decay_steps, kStepCount);
}

void visit_fields(FieldVisitor& v, EvalConfig& c) {
  v.field("every", c.every, kStepCount);
  v.field("max_samples", c.max_samples, IntegerLimit{0, kMostSamples});
  v.field("best", c.best);
  v.field("early_stop_patience", c.early_stop_patience, kStepCount);
}

void visit_fields(FieldVisitor& v, CheckpointConfig& c) {
  v.field("every", c.every, kStepCount);
  v.field("keep_last", c.keep_last, IntegerLimit{1, 1'000'000});
  v.field("keep_best", c.keep_best);
  v.field("at_end", c.at_end);
}

void visit_fields(FieldVisitor& v, CommConfig& c) {
  v.field("order", c.order);
  v.field("bucket_mib", c.bucket_mib, RealLimit{0, 1024});
  v.field("tune_buckets", c.tune_buckets);
  v.field("wire_dtype", c.wire_dtype);
  v.field("error_feedback", c.error_feedback);
  v.field("residual_groups", c.residual_groups, IntegerLimit{0, 4096});
  v.field("power_sgd_rank", c.power_sgd_rank, IntegerLimit{0, 32});
  v.field("shared_memory", c.shared_memory);
  v.field("zero_stage", c.zero_stage, IntegerLimit{0, 3});
  v.field("transport", c.transport);
}

void visit_fields(FieldVisitor& v, ExecutionConfig& c) {
  v.field("threads", c.threads, IntegerLimit{0, 1024});
  v.field("precision", c.precision);
  v.field("prefetch_batches", c.prefetch_batches, IntegerLimit{0, 1024});
  v.field("tf32", c.tf32);
  v.field("bf16x3", c.bf16x3);
  v.field("recompute", c.recompute);
  v.field("loss_scale", c.loss_scale, RealLimit{1, 16777216});
  v.field("loss_scale_growth_steps", c.loss_scale_growth_steps, IntegerLimit{1, kMostSteps});
}

void visit_fields(FieldVisitor& v, OutputConfig& c) {
  v.field("run_dir", c.run_dir);
  v.field("tensorboard", c.tensorboard);
  v.field("timeline", c.timeline);
}

template <typename Section>
void visit_section(FieldVisitor& v, const char* name, Section& section) {
  const auto below = v.section(name);
  visit_fields(*below, section);
  below->finish();
}

}  // namespace

void visit_fields(FieldVisitor& v, RunConfig& c) {
  v.field("name", c.name);
  v.field("seed", c.seed);
  visit_section(v, "model", c.model);
  visit_section(v, "data", c.data);
  visit_section(v, "train", c.train);
  visit_section(v, "optimizer", c.optimizer);
  visit_section(v, "schedule", c.schedule);
  visit_section(v, "eval", c.eval);
  visit_section(v, "checkpoint", c.checkpoint);
  visit_section(v, "comm", c.comm);
  visit_section(v, "execution", c.execution);
  visit_section(v, "output", c.output);
  v.finish();
}

}  // namespace lockstep
