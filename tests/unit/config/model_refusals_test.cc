// Models that the schema does not allow. Catches a limit that is not checked, is off by one or
// inverted, and a message that does not say which field, which value and what is allowed.

#include "tests/unit/config/bad_case.h"

namespace lockstep {
namespace {

class ModelRefusal : public testing::TestWithParam<BadCase> {};

TEST_P(ModelRefusal, NamesFieldValueAndAllowed) { expect_refused(GetParam()); }

const std::string kResnetText = R"(model { resnet { depth: 20 } }
data { synthetic {} }
train { steps: 100 }
optimizer { sgd { momentum: 0.9 } }
)";

const std::string kLlamaText = R"(model { llama {} }
data { text { train: "a.txt" } }
train { steps: 100 }
optimizer { adamw {} }
)";

const BadCase kModelCases[] = {
    {"llama_heads", kLlamaText, {"model.llama.heads=7"}, "model.llama.heads", "7", "576"},
    {"llama_kv_heads", kLlamaText, {"model.llama.kv_heads=2"}, "model.llama.kv_heads", "2", "9"},
    {"llama_odd_heads",
     kLlamaText,
     {"model.llama.head_size=5"},
     "model.llama.head_size",
     "5",
     "even"},
    {"llama_dynamic",
     kLlamaText,
     {"model.llama.head_size=2", "model.llama.rope_scaling=DYNAMIC"},
     "model.llama.head_size",
     "2",
     "4 or more"},
    {"llama_frequencies",
     kLlamaText,
     {"model.llama.rope_high_freq_factor=1"},
     "model.llama.rope_high_freq_factor",
     "1",
     "above model.llama.rope_low_freq_factor"},
    {"resnet_depth", kResnetText, {"model.resnet.depth=19"}, "model.resnet.depth", "19", "18, 34"},
    {"resnet_depth_limit",
     kResnetText,
     {"model.resnet.depth=153"},
     "model.resnet.depth",
     "153",
     "18..152"},
    {"resnet_padded",
     kResnetText,
     {"model.resnet.depth=50", "model.resnet.shortcut=PADDED"},
     "model.resnet.shortcut",
     "PADDED",
     "PROJECTION with model.resnet.depth 50"},
    {"groups_without_bottlenecks",
     kResnetText,
     {"model.resnet.groups=32"},
     "model.resnet.groups",
     "32",
     "1 with model.resnet.depth 20; others with 50, 101 and 152"},
    {"group_widths_without_bottlenecks",
     kResnetText,
     {"model.resnet.depth=18", "model.resnet.width_per_group=128"},
     "model.resnet.width_per_group",
     "128",
     "64 with model.resnet.depth 18"},
    {"resnet_smoothing",
     kResnetText,
     {"model.resnet.label_smoothing=1"},
     "model.resnet.label_smoothing",
     "1",
     "[0, 1)"},
    {"mixup_negative", kResnetText, {"train.mixup=-0.1"}, "train.mixup", "-0.1", "[0, 100]"},
    {"mixup_large", kResnetText, {"train.mixup=101"}, "train.mixup", "101", "[0, 100]"},
    {"mixup_nan", kResnetText, {"train.mixup=nan"}, "train.mixup", "nan", "[0, 100]"},
    {"mixup_of_one_sample",
     kResnetText,
     {"train.mixup=0.2", "train.global_batch=8", "train.lanes=8"},
     "train.mixup",
     "0.2",
     "2 samples or more in a lane"},
    {"mixup_of_features", kMlpText, {"train.mixup=0.2"}, "train.mixup", "0.2", "model of images"},
    {"mixup_of_images_as_features",
     kMlpText,
     {"data.cifar.train=a", "train.mixup=0.2"},
     "train.mixup",
     "0.2",
     "model of images"},
    {"mixup_of_tokens", kGptText, {"train.mixup=0.2"}, "train.mixup", "0.2", "model of images"},
    {"vgg_depth", kResnetText, {"model.vgg.depth=12"}, "model.vgg.depth", "12", "11, 13, 16, 19"},
    {"vgg_norms_without_norms",
     kResnetText,
     {"model.vgg.sync_batch_norm=true"},
     "model.vgg.sync_batch_norm",
     "true",
     "model.vgg.batch_norm"},
    {"alexnet_dropout",
     kResnetText,
     {"model.alexnet.dropout=1"},
     "model.alexnet.dropout",
     "1",
     "[0, 1)"},
    {"lenet_activation",
     kResnetText,
     {"model.lenet.activation=GELU_ERF"},
     "model.lenet.activation",
     "GELU_ERF",
     "RELU or TANH"},
    {"hidden_zero", kMlpText, {"model.mlp.hidden=8,0"}, "model.mlp.hidden", "0", "1..1000000"},
    {"hidden_large", kMlpText, {"model.mlp.hidden=1000001"}, "model.mlp.hidden", "1000001", "1..1"},
    {"mlp_dropout", kMlpText, {"model.mlp.dropout=1"}, "model.mlp.dropout", "1", "[0, 1)"},
    {"mlp_dropout_negative",
     kMlpText,
     {"model.mlp.dropout=-0.1"},
     "model.mlp.dropout",
     "-0.1",
     "[0, 1)"},
    {"dropout_without_hidden",
     kMlpText,
     {"model.mlp.hidden=", "model.mlp.dropout=0.5"},
     "model.mlp.dropout",
     "0.5",
     "model.mlp.hidden"},
    {"smoothing_with_squared_error",
     kMlpText,
     {"model.mlp.label_smoothing=0.1", "model.mlp.loss=MEAN_SQUARED_ERROR"},
     "model.mlp.label_smoothing",
     "0.1",
     "SOFTMAX_CROSS_ENTROPY"},
    {"smoothing_with_binary",
     kMlpText,
     {"model.mlp.label_smoothing=0.1", "model.mlp.loss=BINARY_CROSS_ENTROPY"},
     "model.mlp.label_smoothing",
     "0.1",
     "SOFTMAX_CROSS_ENTROPY"},
    {"outputs", kMlpText, {"model.mlp.outputs=-1"}, "model.mlp.outputs", "-1", "0..10000000"},
    {"binary_outputs",
     kMlpText,
     {"model.mlp.outputs=2", "model.mlp.loss=BINARY_CROSS_ENTROPY"},
     "model.mlp.outputs",
     "2",
     "0 or 1"},
    {"layers_zero", kGptText, {"model.gpt.layers=0"}, "model.gpt.layers", "0", "1..1000"},
    {"layers_large", kGptText, {"model.gpt.layers=1001"}, "model.gpt.layers", "1001", "1..1000"},
    {"heads_zero", kGptText, {"model.gpt.heads=0"}, "model.gpt.heads", "0", "1..1000000"},
    {"heads_not_divisor", kGptText, {"model.gpt.heads=5"}, "model.gpt.heads", "5", "64"},
    {"width_zero", kGptText, {"model.gpt.width=0"}, "model.gpt.width", "0", "1..1000000"},
    {"context", kGptText, {"model.gpt.context=1048577"}, "model.gpt.context", "1048577", "1048576"},
    {"vocabulary", kGptText, {"model.gpt.vocabulary=-1"}, "model.gpt.vocabulary", "-1", "0..1000"},
    {"vocabulary_below_bytes",
     kGptText,
     {"model.gpt.vocabulary=255"},
     "model.gpt.vocabulary",
     "255",
     "256"},
    {"gpt_dropout_nan", kGptText, {"model.gpt.dropout=nan"}, "model.gpt.dropout", "nan", "[0, 1)"},
    {"gpt_smoothing",
     kGptText,
     {"model.gpt.label_smoothing=1"},
     "model.gpt.label_smoothing",
     "1",
     "[0, 1)"},
};

TEST(Mixup, IsTakenFromTwoSamplesALaneOn) {
  const auto two =
      parse_good(kResnetText, {"train.mixup=0.2", "train.global_batch=16", "train.lanes=8"});
  EXPECT_EQ(two.train.mixup, 0.2f);
  EXPECT_EQ(parse_good(kResnetText, {"train.global_batch=8", "train.lanes=8"}).train.mixup, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelRefusal, testing::ValuesIn(kModelCases), label_of);

}  // namespace
}  // namespace lockstep
