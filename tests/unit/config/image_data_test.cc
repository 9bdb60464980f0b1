// The sections of image data. Catches a limit that is not checked, a default that is not the
// documented one, and settings of images that are ignored where there are none.

#include "runtime/data/format.h"
#include "tests/unit/config/bad_case.h"

namespace lockstep::config {
namespace {

const std::string kBase = R"(model { mlp { hidden: [8] } }
train { steps: 100 }
optimizer { sgd {} }
)";
const std::string kCifar = kBase + R"(data { cifar { train: "a.bin" train: "b.bin" } })";
const std::string kFolder = kBase + R"(data { image_folder { train: "t" } image { size: 224 } })";
const std::string kShards =
    kBase + R"(data { tar_shards { train: "a-{0..3}.tar" } image { size: 224 } })";
const std::string kRecords = kBase + R"(data { records { train: "t" } image { size: 64 } })";

class ImageRefusal : public testing::TestWithParam<BadCase> {};

TEST_P(ImageRefusal, NamesFieldValueAndAllowed) { expect_refused(GetParam()); }

const BadCase kCases[] = {
    {"cifar_files", kCifar, {"data.cifar.train="}, "data.cifar.train", "missing", "CIFAR"},
    {"cifar_classes", kCifar, {"data.cifar.classes=20"}, "data.cifar.classes", "20", "10 (CIFAR"},
    {"coarse", kCifar, {"data.cifar.coarse=true"}, "data.cifar.coarse", "true", "classes is 100"},
    {"folder", kFolder, {"data.image_folder.train="}, "data.image_folder.train", "missing", "per"},
    {"no_size", kFolder, {"data.image.size=0"}, "data.image.size", "missing", "1..8192"},
    {"no_size_records", kRecords, {"data.image.size=0"}, "data.image.size", "missing", "1..8192"},
    {"records", kRecords, {"data.records.train="}, "data.records.train", "missing", "data pack"},
    {"size", kFolder, {"data.image.size=8193"}, "data.image.size", "8193", "0..8192"},
    {"resize", kFolder, {"data.image.resize=200"}, "data.image.resize", "200", "224"},
    {"std", kFolder, {"data.image.std=0.2,0"}, "data.image.std", "0", "> 0"},
    {"shards", kShards, {"data.tar_shards.train="}, "data.tar_shards.train", "missing", "tar"},
    {"buffer",
     kShards,
     {"data.tar_shards.shuffle_buffer=0"},
     "data.tar_shards.shuffle_buffer",
     "0",
     "1.."},
    {"threads", kShards, {"data.decode_threads=1025"}, "data.decode_threads", "1025", "0..1024"},
    {"scale",
     kFolder,
     {"data.augment.random_resized_crop.scale=0.5"},
     "data.augment.random_resized_crop.scale",
     "[0.5]",
     "two numbers"},
    {"scale_zero",
     kFolder,
     {"data.augment.random_resized_crop.scale=0,1"},
     "data.augment.random_resized_crop.scale",
     "0",
     "(0, 1]"},
    {"ratio",
     kFolder,
     {"data.augment.random_resized_crop.ratio=2,1"},
     "data.augment.random_resized_crop.ratio",
     "[2, 1]",
     "two numbers"},
    {"padding",
     kCifar,
     {"data.augment.pad_and_crop.padding=0"},
     "data.augment.pad_and_crop.padding",
     "0",
     "1..4096"},
    {"flip",
     kCifar,
     {"data.augment.horizontal_flip=1.5"},
     "data.augment.horizontal_flip",
     "1.5",
     "[0, 1]"},
    {"hue",
     kCifar,
     {"data.augment.colour_jitter.hue=0.6"},
     "data.augment.colour_jitter.hue",
     "0.6",
     "[0, 0.5]"},
    {"table_image", kMlpText, {"data.image.size=3"}, "data.image", "given", "images"},
    {"table_augment",
     kMlpText,
     {"data.augment.horizontal_flip=0.5"},
     "data.augment",
     "given",
     "images"},
    {"gpt", kGptText, {"data.cifar.train=a"}, "data", "data.cifar", "data.text"},
};

INSTANTIATE_TEST_SUITE_P(Images, ImageRefusal, testing::ValuesIn(kCases), label_of);

TEST(ImageConfigs, HaveTheDocumentedDefaults) {
  const DataConfig folder = parse_good(kFolder, {"data.augment.random_resized_crop={}"}).data;
  EXPECT_EQ(folder.image.resize, 0);
  EXPECT_TRUE(folder.image.mean.empty());
  EXPECT_EQ(folder.augment.random_resized_crop->scale, (std::vector<float>{0.08f, 1}));
  EXPECT_EQ(folder.augment.random_resized_crop->ratio, (std::vector<float>{0.75f, 4.0f / 3}));
  EXPECT_FALSE(folder.augment.pad_and_crop || folder.augment.colour_jitter);
  EXPECT_EQ(parse_good(kCifar, {"data.augment.pad_and_crop={}"}).data.augment.pad_and_crop->padding,
            4);
}

TEST(ImageConfigs, KnowWhatIsAnImage) {
  const auto has_images = [](const std::string& text, ModelInput input) {
    const RunConfig config = parse_good(text);
    return data::format_of(config.data)->has_images(input);
  };
  EXPECT_TRUE(has_images(kCifar, ModelInput::kFeatures));
  EXPECT_TRUE(has_images(kShards, ModelInput::kImages));
  EXPECT_FALSE(has_images(kMlpText, ModelInput::kFeatures));
  EXPECT_FALSE(has_images(kBase + "data { synthetic {} }", ModelInput::kFeatures));
  EXPECT_TRUE(has_images(kBase + "data { synthetic {} }", ModelInput::kImages));
}

TEST(ImageConfigs, KnowTheirEvaluationData) {
  const auto has_eval = [](const std::string& text, const std::string& change) {
    const RunConfig config = parse_good(text, {change});
    return data::format_of(config.data)->has_eval();
  };
  EXPECT_FALSE(has_eval(kCifar, "data.cifar.train=x"));
  EXPECT_TRUE(has_eval(kCifar, "data.cifar.eval=x"));
  EXPECT_TRUE(has_eval(kRecords, "data.records.eval=x"));
}

}  // namespace
}  // namespace lockstep::config
