// Catches: an op of a plan that is counted twice, not at all or with the passes over memory of this
// program's fusions; hardware for which nothing published speaks.
#include "launcher/published/planned_work.h"

#include <gtest/gtest.h>

#include "launcher/published/networks.h"
#include "launcher/published/tuned_forecast.h"
#include "runtime/base/file.h"
#include "runtime/config/hardware.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "tests/reference/prepared.h"

namespace lockstep::published {
namespace {

// `name`: of a file in configs/. `train`: further fields of that section.
run::PreparedRun prepared_for(const std::string& name,
                              const std::vector<std::string>& set = {},
                              const std::string& train = "") {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  const std::string path = LOCKSTEP_SOURCE_DIR "/configs/" + name + ".textproto";
  std::string text = read_file(path, size_t{1} << 20);
  const std::string section = "\ntrain {";
  text.insert(text.find(section) + section.size(), train);
  return testing::prepare(config::parse_config(text, path, set),
                          {},
                          run::RunPurpose::kTrain,
                          cpu->ops(),
                          {.may_assume_data = true});
}

double attention_multiply_adds(const NetworkWork& work) {
  double sum = 0;
  for (const Attention& each : work.attentions)
    sum += 2 * each.heads * each.queries * each.keys * each.size * (each.causal ? 0.5 : 1);
  return sum;
}

// Elements that all walks read and write, forward and backward.
double moved(const NetworkWork& work, size_t fusion) {
  double sum = 0;
  for (const Walk& walk : work.walks)
    sum += walk.elements * (walk.forward[fusion] + walk.backward[fusion]);
  return sum;
}

// The networks that the published model counts from their structure, and those of the configs.
TEST(PlannedWork, AgreesWithTheStructureOfKnownNetworks) {
  struct Known {
    const char* config;
    NetworkWork work;
  };
  const Known known[] = {
      {"vision/resnet50_imagenet", resnet(128, {})},
      {"vision/mobilenet_v2_imagenet", mobile_net_v2(32)},
      {"models/bert_base", bert(32, 512, {12, 768, 0, 12, 0, 30522}, 1, false)},
      {"models/bert_large", bert(32, 512, {24, 1024, 0, 16, 0, 30522}, 1, false)},
      {"models/gpt2_124m", gpt(64, 1024, {12, 768, 0, 12, 0, 50257}, true, false)},
      {"models/smollm_135m", llama(32, 2048, {30, 576, 1536, 9, 3, 49152, true})},
      {"models/llama_3.2_1b", llama(8, 4096, {16, 2048, 8192, 32, 8, 128256, true})},
      {"models/llama_3_8b", llama(8, 4096, {32, 4096, 14336, 32, 8, 128256})}};
  for (const auto& [name, work] : known) {
    const PlannedWork planned = work_of(prepared_for(name));
    const NetworkWork& counted = planned.network;
    EXPECT_EQ(planned.uncounted, "") << name;
    const auto ratio = [&](auto&& of) { return of(counted) / of(work); };
    EXPECT_NEAR(ratio([](auto& w) { return w.multiply_adds(); }), 1, 0.001) << name;
    // The published count of BERT has no bias of the head and no kinds of segments.
    EXPECT_NEAR(ratio([](auto& w) { return w.parameters; }), 1, 0.001) << name;
    EXPECT_DOUBLE_EQ(attention_multiply_adds(counted), attention_multiply_adds(work)) << name;
    EXPECT_NEAR(counted.late_parameters, work.late_parameters, 0.02 * work.late_parameters) << name;
    // The embeddings of BERT are counted op by op, and last norms are counted.
    for (const size_t fusion : {0, 1, 2})
      EXPECT_NEAR(ratio([&](auto& w) { return moved(w, fusion); }), 1, 0.025) << name;
    EXPECT_EQ(counted.samples, work.samples) << name;
    if (work.body_products > 0) {
      EXPECT_EQ(counted.body_products, work.body_products) << name;
    }
  }
}

double backward_products(const NetworkWork& work) {
  double count = 0;
  for (const Product& product : work.products) count += product.trained ? 1 : 0;
  return count;
}

TEST(PlannedWork, PartsThatAreNotTrained) {
  const std::string resnet = "vision/resnet50_imagenet", llama = "models/llama_3.2_1b";
  const PlannedWork head =
      work_of(prepared_for(resnet, {}, "groups { match: '^(?!fc)' freeze: true }"));
  EXPECT_EQ(head.uncounted, "");
  EXPECT_EQ(head.network.parameters, 2048 * 1000 + 1000);
  EXPECT_EQ(backward_products(head.network), 1);
  const PlannedWork first =
      work_of(prepared_for(resnet, {}, "groups { match: 'layer4' freeze: true }"));
  EXPECT_EQ(first.uncounted, "the work of frozen layers above trained ones is not counted");
  const PlannedWork adapted = work_of(prepared_for(llama, {"adapter.lora.rank=8"}));
  EXPECT_TRUE(adapted.adapters);
  const PlannedWork whole = work_of(prepared_for(llama));
  EXPECT_EQ(adapted.uncounted, "");
  EXPECT_EQ(adapted.network.parameters, whole.network.parameters);
  EXPECT_EQ(adapted.network.multiply_adds(), whole.network.multiply_adds());
}

TunedForecast forecast(const run::PreparedRun& prepared, const Hardware& hardware) {
  const Link* link = hardware.link.empty() ? nullptr : &config::find_link(hardware, hardware.link);
  return tuned_forecast(prepared, {.hardware = &hardware, .link = link});
}
TunedForecast forecast(const run::PreparedRun& prepared, const char* hardware) {
  return forecast(prepared, *config::find_hardware(hardware));
}

// ResNet-50 on one A100: timm's, MXNet's and MLPerf's trainers reach 2,500 to 3,200 images/s.
TEST(TunedForecast, SettingsOfTheConfigCount) {
  const std::string llama = "models/llama_3.2_1b", bf16 = "execution.precision=BF16";
  const run::PreparedRun resnet = prepared_for("vision/resnet50_imagenet", {bf16});
  const TunedForecast half = forecast(resnet, "A100-80GB");
  EXPECT_EQ(half.unknown, "");
  EXPECT_GT(half.samples_per_s, 2000);
  EXPECT_LT(half.samples_per_s, 3500);
  EXPECT_EQ(half.trainer.micro_batches, 8);
  EXPECT_GT(forecast(resnet, "Xeon-8480").samples_per_s, 50);
  EXPECT_EQ(forecast(resnet, "EPYC-9654").unknown,
            "no published figures of 16 bits on CPUs without AMX");
  const TunedForecast kept = forecast(prepared_for(llama, {bf16}), "H100");
  const TunedForecast again =
      forecast(prepared_for(llama, {bf16, "execution.recompute=BLOCKS"}), "H100");
  EXPECT_EQ(kept.step.recompute, 0);
  EXPECT_GT(again.step.recompute, 0.2 * kept.step.forward);
}

TEST(TunedForecast, NothingIsPredictedWithoutFigures) {
  const run::PreparedRun resnet = prepared_for("vision/resnet50_imagenet");
  EXPECT_EQ(forecast(resnet, "RTX-5090").unknown,
            "no published figures of GPUs with compute capability 12.0");
  EXPECT_EQ(forecast(resnet, "EPYC-9654").unknown, "");
  Hardware copy = *config::find_hardware("H100");
  copy.watts = 500;
  EXPECT_EQ(forecast(resnet, copy).unknown, "no published figures of hardware from a file");
  EXPECT_EQ(forecast(prepared_for("quickstart/fashion_mnist_mlp"), "H100").unknown,
            "published figures are of steps that take longer than 20 ms");
  Json json;
  add_tuned(forecast(resnet, "Graviton4"), json);
  EXPECT_EQ(json.at("predicted_tuned_unknown"), "no published figures of CPUs with NEON");
  EXPECT_EQ(json.size(), 1u);
}

}  // namespace
}  // namespace lockstep::published
