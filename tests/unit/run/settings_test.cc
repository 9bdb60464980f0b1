// Catches: a setting whose name or value the config does not have, one that changes nothing or has
// no effect on the run, a refusal for memory that names a setting with which the run does not fit
// either, or one that changes bits although another one would not.
#include "runtime/run/settings.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "runtime/base/error.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "runtime/run/fit.h"
#include "tests/reference/prepared.h"

namespace lockstep::run {
namespace {

PreparedRun prepared_for(const collectives::Topology& topology,
                         const std::string& model,
                         const std::vector<std::string>& set = {}) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  return testing::prepare(
      config::parse_config("model { " + model +
                               " } train { global_batch: 16 lanes: 4 steps: 10 } "
                               "data { synthetic { samples: 64 classes: 512 } } "
                               "optimizer { adamw {} } execution { threads: 1 } ",
                           "test",
                           set),
      topology,
      RunPurpose::kTrain,
      cpu->ops());
}

constexpr const char* kGpt =
    "gpt { layers: 4 heads: 2 width: 32 context: 64 vocabulary: 512 dropout: 0 }";
constexpr collectives::Topology kTwoNodes{2, 1};

std::vector<Setting> all_of(const SettingChoices& choices) {
  std::vector<Setting> all;
  for (const std::vector<Setting>* some : {&choices.fewer_lanes,
                                           &choices.more_lanes,
                                           &choices.zero_stages,
                                           &choices.recomputations,
                                           &choices.loss_rows,
                                           &choices.precisions,
                                           &choices.moments,
                                           &choices.wire_types,
                                           &choices.buckets})
    all.insert(all.end(), some->begin(), some->end());
  return all;
}

TEST(Settings, EachIsAnotherConfigThatTheRunCanHave) {
  const PreparedRun prepared = prepared_for(kTwoNodes, kGpt);
  const std::string text = config::to_text(prepared.config);
  EXPECT_EQ(config::to_text(with_setting(prepared, {}).config), text);
  const std::vector<Setting> all = all_of(setting_choices(prepared));
  EXPECT_EQ(all.size(), 19U);
  for (const Setting& setting : all) {
    const PreparedRun other = with_setting(prepared, setting);
    EXPECT_NE(config::to_text(other.config), text) << set_options(setting);
    EXPECT_EQ(other.placed.ranks(), 2);
  }
}

TEST(Settings, OnlyThoseThatMatter) {
  const SettingChoices one = setting_choices(prepared_for({}, kGpt));
  EXPECT_TRUE(one.zero_stages.empty());
  EXPECT_TRUE(one.wire_types.empty());
  const SettingChoices plain = setting_choices(
      prepared_for(kTwoNodes, kGpt, {"optimizer.sgd.momentum=0", "execution.recompute=BLOCKS"}));
  EXPECT_TRUE(plain.moments.empty());
  const SettingChoices half =
      setting_choices(prepared_for(kTwoNodes, kGpt, {"optimizer.moments=BF16"}));
  ASSERT_EQ(half.moments.size(), 1U);
  EXPECT_EQ(half.moments[0].set[0], "optimizer.moments=INT8");
  EXPECT_TRUE(plain.recomputations.empty());
  const PreparedRun normalises = prepared_for(
      kTwoNodes, "resnet { depth: 20 }", {"data.synthetic.height=32", "data.synthetic.width=32"});
  EXPECT_TRUE(setting_choices(normalises).more_lanes.empty());
  EXPECT_TRUE(setting_choices(normalises).fewer_lanes.empty());
  EXPECT_TRUE(setting_choices(normalises).loss_rows.empty());
}

std::string refusal(const PreparedRun& prepared, size_t host_bytes) {
  try {
    require_memory(prepared, 1, {host_bytes, std::numeric_limits<size_t>::max(), "a GPU"});
  } catch (const MemoryError& error) {
    return error.what();
  }
  return "";
}

TEST(RequireMemory, NamesTheFirstSettingThatFits) {
  const PreparedRun prepared = prepared_for(kTwoNodes, kGpt);
  const size_t needed = prepared.plan.memory.host_bytes(1);
  EXPECT_EQ(refusal(prepared, needed), "");
  bool named = false, changed_bits = false;
  for (size_t limit = needed - 1; limit > needed / 4; limit -= needed / 40) {
    const std::string text = refusal(prepared, limit);
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("with ((--set \\S+ )+)it would fit"))) {
      EXPECT_TRUE(named) << text;  // no setting needs as little
      continue;
    }
    named = true;
    Setting setting;
    std::string words = found[1];
    const std::regex option("--set (\\S+) ");
    for (std::smatch each; std::regex_search(words, each, option); words = each.suffix())
      setting.set.push_back(each[1]);
    EXPECT_LE(with_setting(prepared, setting).plan.memory.host_bytes(1), limit) << text;
    const bool other_bits = text.find("(other bits)") != std::string::npos;
    EXPECT_TRUE(other_bits || !changed_bits) << "a smaller limit kept the bits: " << text;
    changed_bits = other_bits;
  }
  EXPECT_TRUE(changed_bits);
}

}  // namespace
}  // namespace lockstep::run
