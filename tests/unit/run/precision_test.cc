// Catches: execution.precision AUTO that means another type than its table, FP16 on a CPU, 16 bits
// for a network that needs floats, a resumed run whose precision the device decides, and commands
// that only read a checkpoint and reject its precision.
#include "runtime/run/precision.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/config/parse.h"
#include "tests/reference/onnx_bytes.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::run {
namespace {

using namespace testing::onnx_bytes;
using testing::TemporaryFolder;
using Recorded = std::optional<Precision>;

constexpr Precision kFp32 = Precision::kFp32, kBf16 = Precision::kBf16, kFp16 = Precision::kFp16;

exec::OpSet device(bool gpu) {
  exec::OpSet ops = {};
  ops.device = gpu ? "cuda" : "cpu";
  static constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  ops.types = {kTypes, gpu ? size_t{3} : size_t{2}};
  ops.separate_memory = gpu;
  return ops;
}

OpenedConfig config(const std::vector<std::string>& overrides = {},
                    const std::string& model = "mlp { hidden: 4 }") {
  const std::string text =
      "model { " + model +
      " } data { synthetic { samples: 64 features: 2 classes: 2 } } optimizer { sgd {} } train { "
      "steps: 1 global_batch: 16 }";
  return open_config(config::parse_config(text, "test", overrides));
}

struct Row {
  bool gpu;
  RunPurpose purpose;
  std::vector<std::string> overrides;
  Recorded recorded;
  Precision precision;
  std::string text;
};

TEST(ChoosePrecision, FollowsTheTable) {
  const auto train = RunPurpose::kTrain, eval = RunPurpose::kEvaluate,
             predict = RunPurpose::kPredict, generate = RunPurpose::kGenerate;
  const std::string bf16 = "execution.precision=BF16", fp16 = "execution.precision=FP16",
                    fp32 = "execution.precision=FP32", tf32 = "execution.tf32=true",
                    bf16x3 = "execution.bf16x3=true";
  const std::vector<Row> rows = {
      // AUTO, in a new run.
      {false, train, {}, {}, kFp32, "FP32 (AUTO)"},
      {true, train, {}, {}, kBf16, "BF16 (AUTO)"},
      {true, train, {tf32}, {}, kFp32, "FP32 (AUTO with execution.tf32)"},
      {true, train, {bf16x3}, {}, kFp32, "FP32 (AUTO with execution.bf16x3)"},
      {false, train, {bf16x3}, {}, kFp32, "FP32 (AUTO with execution.bf16x3)"},
      // AUTO, as the run recorded.
      {true, train, {}, kFp32, kFp32, "FP32 (AUTO, as the run recorded)"},
      {true, train, {}, kFp16, kFp16, "FP16 (AUTO, as the run recorded)"},
      {false, train, {}, kFp32, kFp32, "FP32 (AUTO, as the run recorded)"},
      {false, train, {}, kBf16, kBf16, "BF16 (AUTO, as the run recorded)"},
      {true, eval, {}, kBf16, kBf16, "BF16 (AUTO, as the run recorded)"},
      {true, predict, {}, kFp32, kFp32, "FP32 (AUTO, as the run recorded)"},
      {true, eval, {}, {}, kBf16, "BF16 (AUTO)"},
      {false, generate, {}, kBf16, kBf16, "BF16 (AUTO, as the run recorded)"},
      {false, generate, {}, {}, kFp32, "FP32 (AUTO)"},
      // What the config names is kept, whatever was recorded.
      {true, train, {fp32}, kBf16, kFp32, "FP32"},
      {true, train, {fp16}, {}, kFp16, "FP16"},
      {true, eval, {bf16}, kFp32, kBf16, "BF16"},
      {true, eval, {fp32, tf32}, {}, kFp32, "FP32"},
      {false, generate, {bf16}, kFp32, kBf16, "BF16"},
      {false, generate, {fp32}, kBf16, kFp32, "FP32"},
  };
  for (const Row& row : rows) {
    const ChosenPrecision chosen =
        choose_precision(config(row.overrides), row.purpose, device(row.gpu), row.recorded);
    EXPECT_EQ(chosen.opened.config.execution.precision, row.precision) << row.text;
    EXPECT_EQ(chosen.text(), row.text);
    EXPECT_EQ(chosen.worth_logging, row.gpu || row.precision != kFp32) << row.text;
  }
}

TEST(ChoosePrecision, ACpuReadsCheckpointsOfAnyPrecision) {
  for (const RunPurpose purpose : {RunPurpose::kEvaluate, RunPurpose::kPredict}) {
    const ChosenPrecision chosen = choose_precision(
        config({"execution.precision=FP16", "execution.loss_scale=8"}), purpose, device(false));
    EXPECT_EQ(chosen.opened.config.execution.precision, kFp32);
    EXPECT_TRUE(chosen.worth_logging);
    EXPECT_NE(chosen.text().find("FP32 (the run's is FP16"), std::string::npos) << chosen.text();
    const ChosenPrecision recorded = choose_precision(config(), purpose, device(false), kFp16);
    EXPECT_EQ(recorded.opened.config.execution.precision, kFp32);
    EXPECT_NE(recorded.text().find("FP32 (the run's is FP16"), std::string::npos);
    EXPECT_EQ(choose_precision(config(), purpose, device(false), kBf16).text(),
              "BF16 (AUTO, as the run recorded)");
    const ChosenPrecision tf32 =
        choose_precision(config({"execution.tf32=true"}), purpose, device(false));
    EXPECT_FALSE(tf32.opened.config.execution.tf32);
    EXPECT_NE(tf32.text().find("without execution.tf32"), std::string::npos) << tf32.text();
    const ChosenPrecision bf16x3 =
        choose_precision(config({"execution.bf16x3=true"}), purpose, device(true));
    EXPECT_FALSE(bf16x3.opened.config.execution.bf16x3);
    EXPECT_EQ(bf16x3.opened.config.execution.precision, kFp32);
    EXPECT_NE(bf16x3.text().find("without execution.bf16x3"), std::string::npos) << bf16x3.text();
  }
}

TEST(ChoosePrecision, GpusGenerateInFp32) {
  const auto choose = [](const std::vector<std::string>& overrides, const Recorded& recorded) {
    return choose_precision(config(overrides), RunPurpose::kGenerate, device(true), recorded);
  };
  for (const ChosenPrecision& chosen :
       {choose({}, kBf16), choose({"execution.precision=BF16"}, {}), choose({}, kFp16)}) {
    EXPECT_EQ(chosen.opened.config.execution.precision, kFp32);
    EXPECT_TRUE(chosen.worth_logging);
    EXPECT_TRUE(chosen.text().starts_with("FP32 (the run's is ")) << chosen.text();
  }
  for (const ChosenPrecision& chosen :
       {choose({}, {}), choose({}, kFp32), choose({"execution.tf32=true"}, {})}) {
    EXPECT_EQ(chosen.opened.config.execution.precision, kFp32);
    EXPECT_FALSE(chosen.worth_logging) << chosen.text();
  }
  const ChosenPrecision half =
      choose_precision(config({"execution.precision=FP16"}), RunPurpose::kGenerate, device(false));
  EXPECT_EQ(half.text(), "FP32 (the run's is FP16, in which device cpu does not generate)");
}

// The error that the choice throws.
std::string refusal(const OpenedConfig& opened, bool gpu, const Recorded& recorded) {
  try {
    choose_precision(opened, RunPurpose::kTrain, device(gpu), recorded);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(ChoosePrecision, TrainingDoesNotLeaveTheRecordedPrecision) {
  const std::string error = refusal(config(), false, kFp16);
  EXPECT_NE(error.find("FP16"), std::string::npos) << error;
  EXPECT_NE(error.find("--allow-change execution.precision"), std::string::npos) << error;
}

// Fields that exclude each other are compared with the resolved precision.
TEST(ChoosePrecision, WhatFp16ExcludesIsRefused) {
  const OpenedConfig opened = config({"comm.power_sgd_rank=4", "comm.zero_stage=0"});
  EXPECT_EQ(choose_precision(opened, RunPurpose::kTrain, device(true)).text(), "BF16 (AUTO)");
  const std::string error = refusal(opened, true, kFp16);
  EXPECT_NE(error.find("comm.power_sgd_rank"), std::string::npos) << error;
}

// A network y = x w + sum(int(x)), whose sum is of integers if `integers`.
std::string network(bool integers) {
  std::vector<std::string> nodes = {
      node("MatMul", {"x", "w"}, {"h"}),
      node("Cast", {"x"}, {"i"}, "", {integer_attribute("to", integers ? kInt64 : kFloat)}),
      node("ReduceSum", {"i", "val_0"}, {"s"}),
      node("Cast", {"s"}, {"f"}, "", {integer_attribute("to", kFloat)}),
      node("Add", {"h", "f"}, {"y"})};
  return model({nodes,
                {tensor("w", {2, 2}, kFloat, bytes(9, raw(std::vector<float>{1, 2, 3, 4}))),
                 tensor("val_0", {1}, kInt64, bytes(7, packed({1})))}},
               18);
}

TEST(ChoosePrecision, NetworksThatNeedFloatsGetThem) {
  TemporaryFolder folder;
  folder.write("floats.onnx", network(false));
  folder.write("integers.onnx", network(true));
  const auto choose = [&](const std::string& name) {
    const std::string path = (folder.path() / name).string();
    return choose_precision(
        config({}, "onnx { file: \"" + path + "\" }"), RunPurpose::kTrain, device(true));
  };
  EXPECT_EQ(choose("floats.onnx").text(), "BF16 (AUTO)");
  const ChosenPrecision integers = choose("integers.onnx");
  EXPECT_EQ(integers.opened.config.execution.precision, kFp32);
  EXPECT_NE(integers.text().find("FP32 (AUTO, because node ReduceSum"), std::string::npos)
      << integers.text();
}

// What a run of a revision without AUTO recorded.
TEST(ParseRecordedConfig, AMissingPrecisionIsFp32) {
  const std::string text = config::to_text(config({"execution.precision=BF16"}).config);
  EXPECT_EQ(config::parse_recorded_config(text, "test").execution.precision, kBf16);
  std::string older = text;
  const size_t line = older.find("precision: BF16\n");
  ASSERT_NE(line, std::string::npos);
  older.erase(line, std::string("precision: BF16\n").size());
  EXPECT_EQ(config::parse_recorded_config(older, "test").execution.precision, kFp32);
}

}  // namespace
}  // namespace lockstep::run
