// to_text and back. Catches a field that is written or read into another one, is forgotten, or
// loses digits.

#include <cmath>
#include <limits>
#include <random>

#include "runtime/data/format.h"
#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

// Draws valid configs with every field away from its default most of the time.
class RandomConfig {
 public:
  explicit RandomConfig(uint64_t seed) : random_(seed) {}

  RunConfig draw() {
    RunConfig config;
    config.name = "run-" + std::to_string(integer(0, 999));
    config.seed = random_();
    const int64_t model = integer(0, 2);
    if (model == 0) {
      config.model = mlp();
      config.data.source = mlp_data();
    } else if (model == 1) {
      config.model = gpt();
      config.data.source = gpt_data();
    } else {
      config.model = lenet();
      config.data.source = image_data();
    }
    draw_data(config.data);
    draw_train(config.train);
    if (model == 2 && config.train.global_batch != config.train.lanes)
      config.train.mixup = 100 * fraction();
    draw_guard(config.guard);
    draw_optimizer(config.optimizer);
    draw_schedule(config.schedule, config.train.steps);
    const bool accuracy = !regression_;
    draw_rest(config, accuracy);
    return config;
  }

 private:
  bool flag() { return (random_() & 1) != 0; }
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  float fraction() { return std::uniform_real_distribution<float>(0, 0.9999f)(random_); }
  // Any magnitude that a float has, denormal numbers included.
  float positive() {
    return std::ldexp(0.5f + fraction() / 2, static_cast<int>(integer(-147, 127)));
  }
  float not_negative() { return integer(0, 4) == 0 ? 0 : positive(); }
  template <typename Enum>
  Enum pick(Enum last) {
    return static_cast<Enum>(integer(0, static_cast<int64_t>(last)));
  }

  // Bytes of all kinds: quotes, control characters, UTF-8 and what is not UTF-8; never NUL.
  std::string text() {
    std::string result = "t";
    for (int64_t i = integer(0, 12); i > 0; --i) result += static_cast<char>(integer(1, 255));
    if (flag()) result += "grün \"'\\\n\t";
    return result;
  }
  std::string text_or_none() { return flag() ? text() : ""; }

  // Names that begin with a letter of the list, so that no column is in two lists.
  std::vector<std::string> column_names(char initial) {
    std::vector<std::string> names;
    for (int64_t i = integer(0, 3); i > 0; --i) {
      names.push_back(text());
      names.back()[0] = initial;
    }
    return names;
  }

  MlpConfig mlp() {
    MlpConfig mlp;
    for (int64_t i = integer(0, 4); i > 0; --i) mlp.hidden.push_back(integer(1, 1'000'000));
    mlp.activation = pick(Activation::kTanh);
    if (!mlp.hidden.empty()) mlp.dropout = fraction();
    mlp.loss = pick(Loss::kSoftCrossEntropy);
    regression_ = mlp.loss == Loss::kMeanSquaredError || mlp.loss == Loss::kMeanAbsoluteError ||
                  mlp.loss == Loss::kHuber;
    if (mlp.loss == Loss::kHuber) mlp.huber_delta = 0.5f + fraction();
    if (mlp.loss == Loss::kSoftmaxCrossEntropy) mlp.label_smoothing = fraction();
    mlp.outputs = integer(0, 10'000'000);
    loss_ = mlp.loss;
    return mlp;
  }

  GptConfig gpt() {
    regression_ = false;
    const int64_t heads = integer(1, 64);
    return {.layers = integer(1, 1000),
            .heads = heads,
            .width = heads * integer(1, 128),
            .context = integer(1, 1'048'576),
            .vocabulary = flag() ? 0 : integer(256, 10'000'000),
            .tied_head = flag(),
            .bias = flag(),
            .dropout = fraction(),
            .label_smoothing = fraction(),
            .activation = pick(Activation::kTanh)};
  }

  LenetConfig lenet() {
    regression_ = false;
    return {.activation = flag() ? Activation::kRelu : Activation::kTanh,
            .pooling = pick(LenetConfig::Pooling::kAverage),
            .label_smoothing = fraction(),
            .classes = integer(0, 10'000'000)};
  }

  std::vector<std::string> files(int64_t least) {
    std::vector<std::string> names;
    for (int64_t i = integer(least, 3); i > 0; --i) names.push_back(text());
    return names;
  }

  decltype(DataConfig::source) image_data() {
    has_eval_ = flag();
    const int64_t least = has_eval_ ? 1 : 0;
    const std::string eval = has_eval_ ? text() : "";
    std::vector<std::string> evals = files(least);
    if (!has_eval_) evals.clear();
    switch (integer(0, 3)) {
      case 0: {
        const int64_t classes = flag() ? 10 : 100;
        return CifarConfig{files(1), evals, classes, classes == 100 && flag()};
      }
      case 1: return ImageFolderConfig{text(), eval};
      case 2:
        return TarShardsConfig{
            files(1), evals, integer(0, 10'000'000), integer(1, int64_t{1} << 30)};
      default: return RecordsConfig{text(), eval};
    }
  }

  void draw_images(DataConfig& data) {
    data.image.size = integer(1, 8192);
    data.image.resize = flag() ? 0 : integer(data.image.size, 8192);
    for (int64_t i = integer(0, 3); i > 0; --i) data.image.mean.push_back(-positive());
    for (int64_t i = integer(0, 3); i > 0; --i) data.image.std.push_back(positive());
    AugmentConfig& augment = data.augment;
    if (flag()) augment.random_resized_crop.emplace();
    if (flag()) augment.random_resized_crop = {{fraction() / 2 + 1e-3f, 0.9f}, {0.5f, 3}};
    if (flag()) augment.pad_and_crop = PadAndCropConfig{integer(1, 4096)};
    augment.horizontal_flip = fraction();
    if (flag())
      augment.colour_jitter = {not_negative(), not_negative(), not_negative(), fraction() / 2};
  }

  decltype(DataConfig::source) mlp_data() {
    // Images have classes, and tables have no distributions.
    const bool classes = loss_ == Loss::kSoftmaxCrossEntropy;
    const int64_t format = integer(0, loss_ == Loss::kSoftCrossEntropy ? 1 : classes ? 4 : 2);
    switch (format) {
      case 3: return image_data();
      case 1: {
        has_eval_ = flag();
        const std::string eval = has_eval_ ? text() : "";
        return NpyConfig{.train_inputs = text(),
                         .train_labels = text(),
                         .eval_inputs = eval,
                         .eval_labels = eval,
                         .targets = {}};
      }
      case 4: {
        IdxConfig idx;
        idx.train_images = text();
        idx.train_labels = text();
        has_eval_ = flag();
        if (has_eval_) idx.eval_images = idx.eval_labels = text();
        idx.mean = flag() ? positive() : -positive();
        idx.std = positive();
        return idx;
      }
      case 2: {
        TableConfig table;
        table.train = text();
        table.eval = text_or_none();
        table.delimiter = std::string(1, "\t;|\x01\xff"[integer(0, 4)]);
        table.header = flag();
        table.target = table.header ? text() : std::to_string(integer(0, 99));
        if (table.header) {
          table.categorical = column_names('c');
          table.numeric = column_names('n');
          table.ignore = column_names('i');
        }
        if (flag()) table.missing = {text(), "", text()};
        if (table.eval.empty()) table.eval_fraction = fraction();
        has_eval_ = !table.eval.empty() || table.eval_fraction > 0;
        return table;
      }
      default: return synthetic();
    }
  }

  decltype(DataConfig::source) gpt_data() {
    switch (integer(0, 2)) {
      case 0: {
        TextConfig config;
        config.train = text();
        config.eval = text_or_none();
        if (config.eval.empty()) config.eval_fraction = fraction();
        has_eval_ = !config.eval.empty() || config.eval_fraction > 0;
        return config;
      }
      case 1: {
        TokensConfig tokens;
        tokens.train = text();
        tokens.eval = text_or_none();
        tokens.format = pick(TokensConfig::Format::kRawUint32);
        has_eval_ = !tokens.eval.empty();
        return tokens;
      }
      default: return synthetic();
    }
  }

  SyntheticConfig synthetic() {
    has_eval_ = false;
    return {.samples = integer(1, int64_t{1} << 40),
            .features = integer(1, 10'000'000),
            .classes = integer(1, 10'000'000),
            .height = integer(1, 65536),
            .width = integer(1, 65536),
            .channels = integer(1, 16)};
  }

  void draw_data(DataConfig& data) {
    data.dir = text_or_none();
    data.shuffle = flag();
    if (!has_eval_) data.eval_fraction = fraction();
    has_eval_ = has_eval_ || data.eval_fraction > 0;
    data.bad_records = pick(BadRecords::kReplace);
    data.max_bad_fraction = fraction();
    data.decode_threads = integer(0, 1024);
    if (data::format_of(data)->has_images(ModelInput::kFeatures)) draw_images(data);
  }

  void draw_train(TrainConfig& train) {
    train.lanes = integer(0, 4096);
    train.global_batch = std::max<int64_t>(train.lanes, 1) * integer(1, 4096);
    if (flag()) {
      train.steps = integer(1, int64_t{1} << 31);
    } else {
      train.epochs = std::uniform_real_distribution<double>(1e-6, 1e6)(random_);
    }
    train.hash_every = integer(0, 1000);
    train.log_every = integer(1, 1000);
    train.init_from = text_or_none();
    train.ema_decay = fraction();
  }

  void draw_optimizer(OptimizerConfig& optimizer) {
    const int64_t kind = integer(0, 7);
    if (kind == 0) {
      SgdConfig sgd{.momentum = fraction(), .weight_decay = not_negative()};
      sgd.nesterov = sgd.momentum > 0 && flag();
      optimizer.kind = sgd;
    } else if (kind == 1) {
      optimizer.kind = LarsConfig{.momentum = fraction(),
                                  .weight_decay = not_negative(),
                                  .trust_coefficient = positive(),
                                  .epsilon = not_negative()};
    } else if (kind == 2) {
      optimizer.kind = LambConfig{.beta1 = fraction(),
                                  .beta2 = fraction(),
                                  .epsilon = positive(),
                                  .weight_decay = not_negative()};
    } else if (kind == 3) {
      optimizer.kind =
          LionConfig{.beta1 = fraction(), .beta2 = fraction(), .weight_decay = not_negative()};
    } else if (kind == 4) {
      optimizer.kind = AdamConfig{.beta1 = fraction(),
                                  .beta2 = fraction(),
                                  .epsilon = positive(),
                                  .weight_decay = not_negative(),
                                  .amsgrad = flag()};
    } else if (kind == 5) {
      optimizer.kind = RmspropConfig{.alpha = fraction(),
                                     .epsilon = positive(),
                                     .weight_decay = not_negative(),
                                     .momentum = fraction(),
                                     .centred = flag()};
    } else if (kind == 6) {
      optimizer.kind = AdagradConfig{.lr_decay = not_negative(),
                                     .epsilon = positive(),
                                     .weight_decay = not_negative(),
                                     .initial_accumulator = not_negative()};
    } else {
      optimizer.kind = AdamwConfig{.beta1 = fraction(),
                                   .beta2 = fraction(),
                                   .epsilon = positive(),
                                   .weight_decay = not_negative(),
                                   .amsgrad = flag()};
    }
    optimizer.clip_norm = not_negative();
    optimizer.decay_bias_and_norm = flag();
  }

  void draw_guard(GuardConfig& guard) {
    guard.enabled = flag();
    guard.every = integer(0, 1000);
    guard.on_damage = pick(FaultPolicy::kRollBack);
    guard.on_not_finite = pick(FaultPolicy::kRollBack);
  }

  void draw_schedule(ScheduleConfig& schedule, int64_t steps) {
    using Kind = ScheduleConfig::Kind;
    schedule.kind = integer(0, 7) == 0 ? Kind::kExponential : pick(Kind::kWarmupStableDecay);
    schedule.lr = positive();
    const int64_t length = steps == 0 ? 1000 : steps;
    schedule.warmup_steps = integer(0, length - 1);
    if (schedule.kind == Kind::kStep) {
      for (int64_t i = integer(1, 4), at = 0; i > 0; --i) {
        schedule.milestones.push_back(at += integer(1, 100));
      }
      schedule.gamma = positive();
    } else if (schedule.kind != Kind::kConstant) {
      schedule.min_lr = schedule.lr * fraction();
    }
    if (schedule.kind == Kind::kPolynomial) schedule.power = positive();
    if (schedule.kind == Kind::kExponential) schedule.gamma = positive();
    if (schedule.kind == Kind::kWarmupStableDecay) {
      schedule.decay_steps = integer(1, length - schedule.warmup_steps);
    }
  }

  void draw_rest(RunConfig& config, bool accuracy) {
    config.eval.every = has_eval_ ? integer(0, 1000) : 0;
    config.eval.max_samples = integer(0, int64_t{1} << 40);
    if (accuracy) config.eval.best = pick(EvalConfig::Metric::kAccuracy);
    if (config.eval.every > 0) config.eval.early_stop_patience = integer(0, 10);
    config.checkpoint.every = integer(0, 1000);
    config.checkpoint.keep_last = integer(1, 1000);
    config.checkpoint.keep_best = flag();
    config.checkpoint.at_end = flag();
    config.comm.order = pick(CommConfig::Order::kFast);
    config.comm.transport = pick(CommConfig::Transport::kTcp);
    config.comm.bucket_mib = std::uniform_real_distribution<double>(1e-3, 1024)(random_);
    config.execution.threads = integer(0, 1024);
    config.execution.prefetch_batches = integer(0, 1024);
    config.output = {.run_dir = text_or_none(), .tensorboard = flag(), .timeline = flag()};
  }

  std::mt19937_64 random_;
  bool has_eval_ = false;
  bool regression_ = false;
  Loss loss_ = Loss::kSoftmaxCrossEntropy;  // of the MLP
};

TEST(RoundTrip, RandomConfigsComeBackEqual) {
  RandomConfig random(20240607);
  for (int i = 0; i < 3000; ++i) {
    const RunConfig config = random.draw();
    const std::string text = to_text(config);
    const RunConfig back = parse_good(text);
    ASSERT_EQ(back, config) << "config " << i << ":\n" << text;
    ASSERT_EQ(to_text(back), text) << "config " << i;
  }
}

// Floats whose shortest decimal form is long, or that lie at the ends of the range.
TEST(RoundTrip, FloatsKeepEveryBit) {
  RunConfig config = parse_good(kGptText);
  for (const float lr : {std::numeric_limits<float>::denorm_min(),
                         std::numeric_limits<float>::min(),
                         std::numeric_limits<float>::max(),
                         std::nextafter(1.0f, 2.0f),
                         std::nextafter(0.1f, 0.0f),
                         16777215.0f,
                         8589973504.0f,
                         1.0f / 3.0f}) {
    config.schedule.lr = lr;
    EXPECT_EQ(parse_good(to_text(config)).schedule.lr, lr);
  }
  config.comm.bucket_mib = std::nextafter(0.1, 1.0);
  EXPECT_EQ(parse_good(to_text(config)).comm.bucket_mib, config.comm.bucket_mib);
}

// The file in a run's folder is for people too: it shows what the run used, defaults included.
TEST(RoundTrip, TextShowsDefaults) {
  const std::string text = to_text(parse_good(kMlpText));
  expect_contains(text,
                  {"name: \"run\"\n",
                   "seed: 1\n",
                   "hidden: [32, 16]\n",
                   "activation: RELU\n",
                   "dropout: 0\n",
                   "missing: \"?\"\n",
                   "max_bad_fraction: 0.001\n",
                   "lanes: 0\n",
                   "epochs: 0\n",
                   "momentum: 0.9\n",
                   "lr: 0.001\n",
                   "decay_steps: 0\n",
                   "keep_last: 2\n",
                   "tune_buckets: false\n",
                   "wire_dtype: FP32\n",
                   "error_feedback: false\n",
                   "transport: AUTO\n",
                   "precision: AUTO\n",
                   "run_dir: \"\"\n",
                   "timeline: false\n"});
}

// operator== is what the tests above rest on: every section takes part in it.
TEST(RoundTrip, ConfigsThatDifferAreNotEqual) {
  const RunConfig config = parse_good(kMlpText);
  for (const char* change : {"name=other",
                             "model.mlp.outputs=3",
                             "data.table.missing=x",
                             "data.shuffle=false",
                             "train.log_every=11",
                             "optimizer.sgd.weight_decay=1",
                             "optimizer.clip_norm=1",
                             "schedule.lr=0.5",
                             "eval.max_samples=1",
                             "checkpoint.keep_last=3",
                             "comm.order=FAST",
                             "comm.transport=MPI",
                             "comm.wire_dtype=BF16",
                             "comm.tune_buckets=true",
                             "execution.threads=1",
                             "output.timeline=true"}) {
    EXPECT_FALSE(parse_good(kMlpText, {change}) == config) << change;
  }
}

}  // namespace
}  // namespace lockstep::config
