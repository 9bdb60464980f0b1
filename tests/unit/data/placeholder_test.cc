// Catches: a plan that needs files although the config says what they would hold, one that assumes
// what the config does not say, and files that are here and are passed over.
#include "runtime/data/placeholder.h"

#include "files.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

const config::ModelTraits kResnet = {.section = "resnet",
                                     .input = config::ModelInput::kImages,
                                     .outputs = 1000,
                                     .outputs_field = "classes"};

template <typename Source>
DataConfig config_of(const Source& source, const std::string& dir = "/absent") {
  DataConfig config;
  config.source = source;
  config.dir = dir;
  return config;
}

// A source that names its files so.
template <typename Source, typename Name>
Source named(const Name& train, const Name& eval = {}) {
  Source source;
  source.train = train;
  source.eval = eval;
  return source;
}
IdxConfig idx(const std::string& train_images) {
  IdxConfig source;
  source.train_images = train_images;
  source.train_labels = "labels";
  return source;
}
using Name = std::string;
using Names = std::vector<std::string>;

OpenedData assume(const DataConfig& config, const config::ModelTraits& model) {
  return open_data_or_placeholder(config, model, 1);
}

TEST(PlaceholderData, AreTokensOfTheModelsVocabulary) {
  const DataConfig config = config_of(named<TokensConfig, Name>("train.bin", "val.bin"));
  const OpenedData opened = assume(config, test::gpt(1024, 50257));
  EXPECT_EQ(opened.summary.classes, 50257);
  EXPECT_EQ(opened.train->input().shape, Shape{1024});
  EXPECT_EQ(opened.train->input().dtype, DType::kI32);
  EXPECT_EQ(opened.eval->target().shape, Shape{1024});
  expect_parts(opened.summary.placeholder,
               {"train.bin does not exist", "50257 tokens, as model.gpt.vocabulary says"});
  expect_parts(error_of([&] { assume(config, test::gpt(1024)); }),
               {"data.tokens: '/absent/train.bin' does not exist", "set model.gpt.vocabulary"});
}

TEST(PlaceholderData, AreBytesOfText) {
  TextConfig text = named<TextConfig, Name>("a.txt");
  EXPECT_EQ(assume(config_of(text), test::gpt(64)).eval, nullptr);
  text.eval_fraction = 0.1f;
  const OpenedData opened = assume(config_of(text), test::gpt(64));
  EXPECT_EQ(opened.summary.classes, 256);
  EXPECT_NE(opened.eval, nullptr);
}

TEST(PlaceholderData, AreTheImagesOfCifar) {
  const DataConfig config =
      config_of(named<CifarConfig, Names>({"data_batch_*.bin*"}, {"test_batch.bin"}));
  const OpenedData opened = assume(config, kResnet);
  EXPECT_EQ(opened.train->input().shape, (Shape{32, 32, 3}));
  EXPECT_EQ(opened.summary.classes, 10);
  EXPECT_EQ(opened.summary.mean.size(), 3u);
  EXPECT_EQ(opened.train->samples(), 50'000);
  EXPECT_EQ(opened.eval->samples(), 10'000);
  // Pixels, labels, and words with a bit a sample for those found bad.
  EXPECT_EQ(opened.train->resident_bytes(), 50'000 * (32 * 32 * 3 + 4) + 782 * 8);
  const OpenedData features = assume(config, test::mlp());
  EXPECT_EQ(features.train->input().shape, Shape{32 * 32 * 3});
  EXPECT_EQ(features.summary.height, 0);
}

TEST(PlaceholderData, AreImagesOfTheConfigsSize) {
  DataConfig config = config_of(named<ImageFolderConfig, Name>("train"));
  config.image.size = 224;
  EXPECT_EQ(assume(config, kResnet).train->input().shape, (Shape{224, 224, 3}));
  EXPECT_EQ(assume(config, kResnet).summary.classes, 1000);
  config::ModelTraits open_ended = kResnet;
  open_ended.outputs = 0;
  expect_parts(error_of([&] { assume(config, open_ended); }),
               {"data.image_folder: '/absent/train'", "set model.resnet.classes"});
  TarShardsConfig shards = named<TarShardsConfig, Names>({"a-{0..3}.tar"});
  shards.classes = 7;
  config.source = shards;
  EXPECT_EQ(assume(config, open_ended).summary.classes, 7);
  config.source = idx("images");
  EXPECT_EQ(assume(config, kResnet).train->input().shape, (Shape{224, 224, 1}));
  config.image.size = 0;
  expect_parts(error_of([&] { assume(config, kResnet); }), {"images", "set data.image.size"});
}

TEST(PlaceholderData, AreNotInventedWhereOnlyTheFileKnows) {
  for (const DataConfig& config :
       {config_of(named<TableConfig, Name>("a.csv")), config_of(idx("a.csv"))}) {
    const std::string message = error_of([&] { assume(config, test::mlp()); });
    expect_parts(message, {"'/absent/a.csv' does not exist", "give the file"});
    EXPECT_EQ(message.find("set "), std::string::npos) << message;
  }
}

TEST(PlaceholderData, AreReadWhereTheyAreHere) {
  const test::TemporaryFolder folder;
  folder.write("a.txt", std::string(100, 'x'));
  const DataConfig config = config_of(named<TextConfig, Name>("a.txt"), folder.path());
  const OpenedData opened = assume(config, test::gpt(9));
  EXPECT_EQ(opened.train->resident_bytes(), 100);
  EXPECT_TRUE(opened.summary.placeholder.empty());
  const OpenedData made = assume(config_of(SyntheticConfig{.samples = 5}), test::mlp());
  EXPECT_EQ(made.train->samples(), 5);
  // A file that is here and broken is no reason to assume another one.
  folder.write("a.txt", "x");
  expect_parts(error_of([&] { assume(config, test::gpt(9)); }), {"too few"});
}

}  // namespace
}  // namespace lockstep::data
