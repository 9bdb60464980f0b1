// Good configs, files, and the checks that need the number of ranks.

#include "runtime/config/parse.h"

// What includes parse.h and run_config.h must not see protobuf.
#if defined(GOOGLE_PROTOBUF_VERSION) || defined(PROTOBUF_VERSION)
#error "the public headers of lockstep_config leak protobuf"
#endif

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <variant>

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

// Catches a default that is written a second time, in the schema or in the parser.
TEST(Parse, FieldsThatAreLeftOutKeepTheDefaultsOfTheStructs) {
  RunConfig expected;
  expected.model = MlpConfig{};
  expected.data.source = SyntheticConfig{};
  expected.train.steps = 1;
  expected.optimizer.kind = AdamwConfig{};
  EXPECT_EQ(parse_good("model { mlp {} } data { synthetic {} } optimizer { adamw {} } "
                       "train { steps: 1 }"),
            expected);
  expected.model = GptConfig{};
  expected.optimizer.kind = SgdConfig{};
  EXPECT_EQ(parse_good("model { gpt {} } data { synthetic {} } optimizer { sgd {} } "
                       "train { steps: 1 }"),
            expected);
}

TEST(Parse, EverySectionIsRead) {
  const RunConfig config = parse_good(R"(
      name: "Run_1.a-b"
      seed: 0
      model { mlp { hidden: 8 hidden: [9] activation: GELU_ERF dropout: 0.25 outputs: 3 } }
      data {
        dir: "/data"
        shuffle: false
        bad_records: REPLACE
        max_bad_fraction: 1
        table {
          train: "t.tsv"
          delimiter: "\t"
          header: false
          target: "3"
          categorical: ["0", "1"]
          ignore: "2"
          missing: ""
          eval_fraction: .125
        }
      }
      train { global_batch: 12 lanes: 4 epochs: 1.5 hash_every: 3 log_every: 1 init_from: "w" }
      optimizer { adam { epsilon: 1e-6 weight_decay: 0.5 } clip_norm: 2 decay_bias_and_norm: true }
      schedule { kind: WARMUP_STABLE_DECAY lr: 1 warmup_steps: 10 min_lr: 1 decay_steps: 5 }
      eval { every: 5 max_samples: 7 best: ACCURACY early_stop_patience: 2 }
      checkpoint { every: 4 keep_last: 1 keep_best: false at_end: false }
      comm { order: FAST bucket_mib: 1024 wire_dtype: FP32 transport: TCP }
      execution { threads: 1024 precision: FP32 prefetch_batches: 3 }
      output { run_dir: "r" tensorboard: false timeline: true })");
  MlpConfig mlp;
  mlp.hidden = {8, 9};
  mlp.activation = Activation::kGeluErf;
  mlp.dropout = 0.25f;
  mlp.outputs = 3;
  TableConfig table;
  table.train = "t.tsv";
  table.delimiter = "\t";
  table.header = false;
  table.target = "3";
  table.categorical = {"0", "1"};
  table.ignore = {"2"};
  table.missing = {""};
  table.eval_fraction = 0.125f;
  RunConfig expected;
  expected.name = "Run_1.a-b";
  expected.seed = 0;
  expected.model = mlp;
  expected.data.source = table;
  expected.data.dir = "/data";
  expected.data.shuffle = false;
  expected.data.bad_records = BadRecords::kReplace;
  expected.data.max_bad_fraction = 1;
  expected.train.global_batch = 12;
  expected.train.lanes = 4;
  expected.train.epochs = 1.5;
  expected.train.hash_every = 3;
  expected.train.log_every = 1;
  expected.train.init_from = "w";
  expected.optimizer.kind = AdamConfig{.epsilon = 1e-6f, .weight_decay = 0.5f};
  expected.optimizer.clip_norm = 2;
  expected.optimizer.decay_bias_and_norm = true;
  expected.schedule.kind = ScheduleConfig::Kind::kWarmupStableDecay;
  expected.schedule.lr = 1;
  expected.schedule.warmup_steps = 10;
  expected.schedule.min_lr = 1;
  expected.schedule.decay_steps = 5;
  expected.eval = {.every = 5,
                   .max_samples = 7,
                   .best = EvalConfig::Metric::kAccuracy,
                   .early_stop_patience = 2};
  expected.checkpoint.every = 4;
  expected.checkpoint.keep_last = 1;
  expected.checkpoint.keep_best = false;
  expected.checkpoint.at_end = false;
  expected.comm.order = CommConfig::Order::kFast;
  expected.comm.bucket_mib = 1024;
  expected.comm.transport = CommConfig::Transport::kTcp;
  expected.execution.threads = 1024;
  expected.execution.precision = Precision::kFp32;
  expected.execution.prefetch_batches = 3;
  expected.output = {.run_dir = "r", .tensorboard = false, .timeline = true};
  EXPECT_EQ(config, expected);
}

// Values on the edge of what is allowed; catches a limit that is too narrow.
TEST(Parse, LimitsIncludeTheirEnds) {
  for (const char* good : {"model.mlp.hidden=1,1000000",
                           "model.mlp.dropout=0.99999",
                           "train.global_batch=16777216",
                           "train.lanes=1",
                           "train.steps=2147483648",
                           "data.max_bad_fraction=0",
                           "schedule.warmup_steps=99",
                           "schedule.lr=1e-45",
                           "execution.prefetch_batches=1024",
                           "optimizer.sgd.nesterov=true",
                           "name=_.-",
                           "seed=0"}) {
    EXPECT_NO_THROW(parse_good(kMlpText, {good})) << good;
  }
  EXPECT_NO_THROW(parse_good(kMlpText, {"name=" + std::string(100, 'n')}));
  EXPECT_NO_THROW(parse_good(kMlpText, {"train.lanes=4096", "train.global_batch=4096"}));
  EXPECT_NO_THROW(parse_good(kMlpText, {"train.steps=0", "train.epochs=1e6"}));
  EXPECT_NO_THROW(parse_good(kMlpText,
                             {"schedule.kind=WARMUP_STABLE_DECAY",
                              "schedule.warmup_steps=10",
                              "schedule.decay_steps=90"}));
  EXPECT_NO_THROW(parse_good(kGptText, {"model.gpt.vocabulary=256", "model.gpt.context=1048576"}));
}

// The error for so many ranks; empty: there is none.
std::string refused_ranks(const RunConfig& config, int ranks) {
  try {
    validate_for_ranks(config, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ValidateForRanks, EveryRankHasALane) {
  const RunConfig config = parse_good(kMlpText, {"train.lanes=8"});
  for (int ranks = 1; ranks <= 8; ++ranks) EXPECT_EQ(refused_ranks(config, ranks), "") << ranks;
  for (const int ranks : {-1, 0, 9, 4096}) EXPECT_NE(refused_ranks(config, ranks), "") << ranks;
}

TEST(ValidateForRanks, MoreRanksThanLanesPrintTheLineToUse) {
  const auto refused = [](const char* lanes, const char* batch, int ranks) {
    return refused_ranks(parse_good(kMlpText,
                                    {"train.lanes=" + std::string(lanes),
                                     "train.global_batch=" + std::string(batch)}),
                         ranks);
  };
  EXPECT_EQ(refused("8", "128", 16),
            "train.lanes: 8 lanes cannot be shared by 16 ranks; allowed: up to 8 ranks, or --set "
            "train.lanes=16");
  EXPECT_EQ(refused("8", "96", 9),  // 9 does not divide the batch, and no multiple does
            "train.lanes: 8 lanes cannot be shared by 9 ranks; allowed: up to 8 ranks, or --set "
            "train.lanes=12 (shared unevenly), or --set train.lanes=9 --set train.global_batch=99");
  EXPECT_EQ(refused("4", "60", 10),
            "train.lanes: 4 lanes cannot be shared by 10 ranks; allowed: up to 4 ranks, or --set "
            "train.lanes=10");
  EXPECT_EQ(refused("1", "1", 2),
            "train.lanes: 1 lane cannot be shared by 2 ranks; allowed: up to 1 rank, or --set "
            "train.lanes=2 --set train.global_batch=2");
}

TEST(ValidateForRanks, ResidualsAreOfGroupsThatARankHasWhole) {
  const RunConfig config = parse_good(kMlpText,
                                      {"train.lanes=12",
                                       "train.global_batch=96",
                                       "comm.wire_dtype=BF16",
                                       "comm.error_feedback=true",
                                       "comm.residual_groups=3"});
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(refused_ranks(config, ranks), "") << ranks;
  EXPECT_EQ(refused_ranks(config, 4),
            "comm.residual_groups: value is 3; allowed: 0, 6, 12 with train.lanes 12 on 4 ranks");
}

class LoadConfig : public testing::Test {
 protected:
  LoadConfig() {
    std::string name = (std::filesystem::temp_directory_path() / "config_test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
    folder_ = name;
  }
  ~LoadConfig() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& text) const {
    const std::filesystem::path path = folder_ / "a.textproto";
    std::ofstream(path) << text;
    return path;
  }

  static std::string refusal_of(const std::filesystem::path& path) {
    try {
      load_config(path, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << path << " was accepted";
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(LoadConfig, ReadsAFileAndAppliesOverrides) {
  const auto path = write(kMlpText);
  EXPECT_EQ(load_config(path, {"train.steps=3"}), parse_good(kMlpText, {"train.steps=3"}));
}

TEST_F(LoadConfig, NamesTheFileInErrors) {
  const auto path = write("seed: 1\nmodle {}");
  expect_contains(refusal_of(path), {path.string() + ":2:1: ", "'modle'"});
}

TEST_F(LoadConfig, RefusesWhatItCannotRead) {
  const auto missing = folder_ / "missing.textproto";
  expect_contains(refusal_of(missing), {missing.string(), "No such file"});
  expect_contains(refusal_of(folder_), {folder_.string(), "is a folder"});
  expect_contains(refusal_of(write(std::string((1 << 20) + 1, '#'))), {"1048576 bytes"});
}

}  // namespace
}  // namespace lockstep::config
