// data.eval_fraction for every format. Catches: a sample that is in both parts or in none, a part
// that depends on the seed, on who opens it or on where the data lie, files that move from set to
// set when others are added, copies of a record on both sides, statistics of the whole set, and
// fractions that leave a part empty.
#include "runtime/data/held_out.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "runtime/data/check_data.h"
#include "sources.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;
using namespace test::sources;

constexpr float kShare = 0.25f;
const config::ModelTraits kImageModel = {.section = "resnet", .input = config::ModelInput::kImages};

// A format with kSamples different samples in a folder.
struct Case {
  std::string name;
  config::ModelTraits model;
  std::function<DataSource(const TemporaryFolder&)> source;
  bool cuts_otherwise = false;  // the parts have other samples than the whole, or scale them
  bool depends_on_seed = false;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class HeldOutSamples : public ::testing::TestWithParam<Case> {
 protected:
  HeldOutSamples() {
    config_.dir = folder_.path();
    config_.source = GetParam().source(folder_);
    config_.shuffle = false;
    if (GetParam().model.wants_images()) config_.image.size = config_.image.resize = 8;
  }
  OpenedData open(float share, bool need_train = true, uint64_t seed = 1) {
    config_.eval_fraction = share;
    return open_data(config_, GetParam().model, seed, need_train);
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_P(HeldOutSamples, PartsAreDisjointAndComplete) {
  const OpenedData whole = open(0), parts = open(kShare);
  ASSERT_EQ(whole.eval, nullptr);
  ASSERT_NE(parts.eval, nullptr);
  std::vector<uint64_t> train = contents(*parts.train), eval = contents(*parts.eval);
  const auto share =
      static_cast<double>(eval.size()) / static_cast<double>(eval.size() + train.size());
  EXPECT_NEAR(share, kShare, 0.08);
  std::vector<uint64_t> both = train, all = contents(*whole.train);
  both.insert(both.end(), eval.begin(), eval.end());
  std::ranges::sort(both);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(both), both.end());
  if (!GetParam().cuts_otherwise) {
    EXPECT_EQ(both, all);
  }
  std::set<std::string> names;
  for (const Dataset* part : {parts.train.get(), parts.eval.get()})
    for (int64_t i = 0; i < part->samples(); ++i) names.insert(part->name_of(i));
  if (whole.train->name_of(0) != "sample 0") {  // otherwise samples have numbers in their part
    EXPECT_EQ(static_cast<int64_t>(names.size()), whole.train->samples());
  }
  EXPECT_EQ(parts.summary.train_samples, parts.train->samples());
  EXPECT_EQ(parts.summary.eval_samples, parts.eval->samples());
  EXPECT_EQ(parts.summary.classes, whole.summary.classes);
  expect_parts(parts.summary.description, {"data.eval_fraction of 0.25 holds out "});
  EXPECT_EQ(whole.summary.description.find("eval_fraction"), std::string::npos);
}

TEST_P(HeldOutSamples, PartsAreTheSameForAll) {
  const OpenedData first = open(kShare), alone = open(kShare, /*need_train=*/false);
  const OpenedData inputs = open_inputs(config_, GetParam().model, 1);
  EXPECT_EQ(alone.train, nullptr);
  EXPECT_EQ(contents(*first.eval), contents(*alone.eval));
  EXPECT_EQ(inputs.eval->samples(), first.eval->samples());
  EXPECT_EQ(first.eval->checksum(), alone.eval->checksum());
  EXPECT_NE(first.eval->checksum(), first.train->checksum());
  const OpenedData other = open(kShare, true, /*seed=*/2);
  EXPECT_EQ(other.eval->samples(), first.eval->samples());
  if (!GetParam().depends_on_seed) {
    EXPECT_EQ(contents(*other.eval), contents(*first.eval));
    EXPECT_EQ(contents(*other.train), contents(*first.train));
  }
}

TEST_P(HeldOutSamples, PartsAreWholeDataSets) {
  const OpenedData parts = open(kShare);
  for (const Dataset* part : {parts.train.get(), parts.eval.get()}) {
    const DataSummary& summary = parts.summary;
    if (part->target().dtype == DType::kI32 && part->target().shape.rank() == 0) {
      LabelCounts counts;
      for (int64_t i = 0; i < part->samples(); ++i) {
        std::vector<std::byte> input(part->input().bytes());
        int32_t label = -1;
        part->read({.index = i}, input.data(), reinterpret_cast<std::byte*>(&label));
        EXPECT_EQ(part->label(i), label);
        counts.add(label);
      }
      EXPECT_EQ(part->label_counts().sorted(), counts.sorted());
      EXPECT_LT(counts.largest(), summary.classes);
    }
    const SampleOrder order = part->order();
    EXPECT_EQ(order.samples, part->samples());
    int64_t in_shards = 0;
    for (const int64_t samples : order.shard_samples) in_shards += samples;
    if (!order.shard_samples.empty()) {
      EXPECT_EQ(in_shards, part->samples());
    }
    const std::vector<std::string> files = part->files();
    if (!files.empty()) {
      EXPECT_EQ(static_cast<int64_t>(files.size()), part->samples());
    }
    EXPECT_FALSE(part->name_of(part->samples() - 1).empty());
  }
  const std::vector<std::string> train = parts.train->files();
  for (const std::string& file : parts.eval->files())
    EXPECT_EQ(std::ranges::count(train, file), 0) << file;
}

TEST_P(HeldOutSamples, APartIsNeverEmpty) {
  expect_parts(error_of([&] { open(1e-6f); }), {"data.eval_fraction of 1e-06", "set a larger one"});
  expect_parts(error_of([&] { open(0.999999f); }),
               {"data.eval_fraction of 0.999999", "set a smaller one"});
}

std::string label_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

config::ModelTraits features() { return test::mlp(); }
config::ModelTraits language_model() { return test::gpt(8); }
config::ModelTraits packing_model() {
  config::ModelTraits model = test::gpt(8);
  model.tells_documents_apart = true;
  return model;
}

config::ModelTraits segmenter() {
  config::ModelTraits model = kImageModel;
  model.outputs = 3;
  model.pixel_classes = true;
  return model;
}
config::ModelTraits embedder() {
  config::ModelTraits model = test::encoder(config::TextTask::kEmbeddings, 8);
  model.loss = Loss::kContrastive;
  return model;
}
config::ModelTraits decoder_of_answers() { return test::encoder(config::TextTask::kAnswers, 8); }
config::ModelTraits transcriber() {
  config::ModelTraits model = test::mlp(Loss::kCtc, 3);
  model.transcript = config::TranscriptTraits{.frames = 2, .features = 2, .output_frames = 2};
  return model;
}

const std::vector<Case> kCases = {
    {"idx_features", features(), idx},
    {"idx_images", kImageModel, idx},
    {"npy_features", features(), [](const auto& folder) { return npy_source(folder, false); }},
    {"npy_images", kImageModel, [](const auto& folder) { return npy_source(folder, true); }},
    {"cifar", kImageModel, cifar},
    {"cifar_features", features(), cifar},
    {"image_folder", kImageModel, image_folder},
    {"tar_shards", kImageModel, tar_shards},
    {"records", kImageModel, records},
    {"table", features(), table, /*cuts_otherwise=*/true},
    {"text", language_model(), text, /*cuts_otherwise=*/true},
    {"tokens",
     language_model(),
     [](const auto& folder) { return tokens(folder, TokensConfig::Packing::kNone); },
     /*cuts_otherwise=*/true},
    {"tokens_padded",
     language_model(),
     [](const auto& folder) { return tokens(folder, TokensConfig::Packing::kPadded); }},
    {"tokens_packed",
     packing_model(),
     [](const auto& folder) { return tokens(folder, TokensConfig::Packing::kBestFit); }},
    {"labelled_text", test::encoder(config::TextTask::kSequenceClass, 8), labelled_text},
    {"tagged_text", test::encoder(config::TextTask::kTokenClasses, 8), tagged_text},
    {"conversations", language_model(), conversations},
    {"preferences", decoder_of_answers(), preferences},
    {"masked_images", segmenter(), masked_images},
    {"text_pairs", embedder(), text_pairs},
    {"transcripts", transcriber(), transcripts},
    {"synthetic_features", features(), synthetic, false, /*depends_on_seed=*/true},
    {"synthetic_tokens",
     language_model(),
     [](const auto&) { return many_tokens(); },
     false,
     /*depends_on_seed=*/true},
    {"synthetic_images", kImageModel, synthetic, false, /*depends_on_seed=*/true},
    {"synthetic_text",
     test::encoder(config::TextTask::kSequenceClass, 8),
     [](const auto&) { return many_tokens(); },
     false,
     /*depends_on_seed=*/true},
};
INSTANTIATE_TEST_SUITE_P(Formats, HeldOutSamples, ::testing::ValuesIn(kCases), label_of);

// Every format is among the cases.
TEST(HeldOut, HasACaseForEveryFormat) {
  std::set<size_t> formats;
  for (const Case& test : kCases) formats.insert(test.source(TemporaryFolder()).index());
  EXPECT_EQ(formats.size(), std::variant_size_v<DataSource>);
}

TEST(HeldOut, AFolderMayGrowAndMove) {
  TemporaryFolder folder, other;
  DataConfig config;
  config.source = image_folder(folder);
  config.dir = folder.path();
  config.image.size = config.image.resize = 8;
  config.eval_fraction = kShare;
  const auto held_out = [&] { return test::open_images(config, 1, true).eval->files(); };
  const std::vector<std::string> before = held_out();
  for (int i = 0; i < 40; ++i)
    add_png(folder.path() / fmt::format("train/class{}/0{}.png", i % 3, i), i);
  std::vector<std::string> kept;
  for (const std::string& file : held_out())
    if (file.find("/0") == std::string::npos || file.ends_with("/0.png")) kept.push_back(file);
  EXPECT_EQ(kept, before);
  // The classes lie at the top of another folder.
  std::filesystem::copy(
      folder.path() / "train",
      other.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const std::vector<std::string> grown = held_out();
  config.dir = other.path();
  config.source = train_on<ImageFolderConfig>(".");
  EXPECT_EQ(held_out(), grown);
}

// Members are held out by their own names, so shards may be cut anew.
TEST(HeldOut, MembersOfTarShardsMayBeRegrouped) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.image.size = config.image.resize = 8;
  config.eval_fraction = kShare;
  config.source = tar_shards(folder);
  const auto names = [&] {
    std::set<std::string> found;
    for (const std::string& file : test::open_images(config, 1, true).eval->files())
      found.insert(file.substr(file.rfind('/')));
    return found;
  };
  const std::set<std::string> two = names();
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = kSamples - 1; i >= 0; --i) {
    members.emplace_back(fmt::format("{}.png", i), png(i));
    members.emplace_back(fmt::format("{}.cls", i), std::to_string(i % 3));
  }
  config.source = train_on<TarShardsConfig>(Names{folder.write("all.tar", test::tar_of(members))});
  EXPECT_EQ(names(), two);
}

// A copy that takes a bad record's place is not evaluated by a model that was trained on it.
template <typename Open>
void expect_copies_together(Open&& open) {
  const OpenedData parts = open();
  const std::vector<uint64_t> train = contents(*parts.train);
  int64_t copies = 0;
  for (const uint64_t sample : contents(*parts.eval))
    EXPECT_EQ(std::ranges::count(train, sample), 0);
  std::vector<uint64_t> sorted = train;
  std::ranges::sort(sorted);
  for (size_t i = 1; i < sorted.size(); ++i) copies += sorted[i] == sorted[i - 1] ? 1 : 0;
  EXPECT_GT(copies, 0);
}

TEST(HeldOut, CopiesOfARecordStayTogether) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.eval_fraction = kShare;
  config.bad_records = BadRecords::kReplace;
  config.max_bad_fraction = 1;
  std::string images, rows = "text\tlabel\n", lines;
  for (int i = 0; i < kSamples; ++i) {
    const bool bad = i % 3 == 1;
    images += cifar_record(i, bad ? 99 : static_cast<char>(i % 10));
    rows += bad ? std::string("no label\n") : fmt::format("{}\t{}\n", words(i), i % 2);
    lines += bad ? "a\n\n"
                 : fmt::format("{} X\n{} Y\n{} X\n\n",
                               "abcdefgh"[i / 64],
                               "abcdefgh"[i / 8 % 8],
                               "abcdefgh"[i % 8]);
  }
  config.source = train_on<CifarConfig>(Names{folder.write("bad", images)});
  expect_copies_together([&] { return test::open_images(config, 1, true); });
  auto labelled = train_on<LabelledTextConfig>(folder.write("bad.tsv", rows));
  labelled.tokenizer = folder.write("vocab.txt", test::kVocabulary);
  config.source = labelled;
  expect_copies_together([&] {
    return open_data(config, test::encoder(config::TextTask::kSequenceClass, 8), 1, true);
  });
  auto tagged = train_on<TaggedTextConfig>(folder.write("bad.conll", lines));
  tagged.tokenizer = labelled.tokenizer;
  config.source = tagged;
  expect_copies_together([&] {
    return open_data(config, test::encoder(config::TextTask::kTokenClasses, 8), 1, true);
  });
}

// The order of training has the samples of the training part only.
TEST(HeldOut, ClassesAreBalancedWithinTheTrainingPart) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.source = cifar(folder);
  config.eval_fraction = kShare;
  config.balance_classes = true;
  const OpenedData parts = test::open_images(config, 1, true);
  const SampleOrder order = parts.train->order();
  EXPECT_EQ(static_cast<int64_t>(order.balanced->samples.size()), parts.train->samples());
  EXPECT_LT(std::ranges::max(order.balanced->samples), parts.train->samples());
  EXPECT_EQ(parts.eval->order().balanced, nullptr);
}

// The older names split as before: the rows of tables and the end of texts.
TEST(HeldOut, OlderNamesSplitAlike) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  const auto both_ways = [&](auto source, const config::ModelTraits& model) {
    config.source = source;
    config.eval_fraction = kShare;
    const std::vector<uint64_t> now = contents(*open_data(config, model, 1, true).eval);
    source.eval_fraction = kShare;
    config.source = source;
    config.eval_fraction = 0;
    const OpenedData older = open_data(config, model, 1, true);
    EXPECT_EQ(contents(*older.eval), now);
    expect_parts(older.summary.description, {".eval_fraction of 0.25 holds out"});
  };
  both_ways(std::get<TableConfig>(table(folder)), features());
  both_ways(std::get<TextConfig>(text(folder)), language_model());
}

// So that predictions can be joined to the rows of the file.
TEST(HeldOut, RowsOfATableKeepTheirNumbers) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.eval_fraction = kShare;
  config.source = table(folder);
  const OpenedData opened = open_data(config, features(), 1, true);
  std::vector<int64_t> records;
  for (const Dataset* part : {opened.train.get(), opened.eval.get()})
    for (int64_t i = 0; i < part->samples(); ++i) {
      records.push_back(part->record_of(i));
      EXPECT_EQ(part->lines()[static_cast<size_t>(i)], records.back() + 2);  // after the header
    }
  std::ranges::sort(records);
  for (int64_t i = 0; i < kSamples; ++i) EXPECT_EQ(records[static_cast<size_t>(i)], i);
}

// What the table's encoder knows is that of the training rows, also when other rows are evaluated.
TEST(HeldOut, StatisticsAreThoseOfTheTrainingRows) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.eval_fraction = kShare;
  auto source = std::get<TableConfig>(table(folder));
  config.source = source;
  const std::vector<uint64_t> train = contents(*open_data(config, features(), 1, true).train);
  source.eval = source.train;
  config.source = source;
  const OpenedData other = open_data(config, features(), 1, false);
  const std::vector<uint64_t> all = contents(*other.eval);
  EXPECT_EQ(other.eval->samples(), kSamples);
  for (const uint64_t sample : train) EXPECT_EQ(std::ranges::count(all, sample), 1);
}

TEST(HeldOut, ContradictionsAreRefused) {
  DataConfig data;
  auto older = train_on<TableConfig>("a.csv");
  older.eval_fraction = 0.2f;
  data.source = older;
  data.eval_fraction = 0.2f;
  EXPECT_NO_THROW(check_held_out(data, true));
  data.eval_fraction = 0.3f;
  expect_parts(error_of([&] { check_held_out(data, true); }, ExitCode::kUsage),
               {"data.table.eval_fraction", "0.2", "the older name of data.eval_fraction", "0.3"});
  IdxConfig pair;
  pair.eval_images = "e";
  data.source = pair;
  expect_parts(error_of([&] { check_held_out(data, true); }, ExitCode::kUsage),
               {"data.eval_fraction: value is 0.3; allowed: 0 when data.idx.eval_images is given"});
  // `predict` may read other data than those that were held out.
  EXPECT_NO_THROW(check_held_out(data, false));
}

// Files that are missing where evaluation data are expected.
TEST(HeldOut, MissingEvaluationDataHaveARemedy) {
  TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  auto pair = std::get<IdxConfig>(idx(folder));
  pair.eval_images = "t10k-images";
  pair.eval_labels = "t10k-labels";
  config.source = pair;
  expect_parts(error_of([&] { open_data(config, features(), 1, true); }),
               {"data.idx.eval_images",
                "--set data.idx.eval_images= --set data.idx.eval_labels= --set "
                "data.eval_fraction=0.1"});
  auto pattern = std::get<CifarConfig>(cifar(folder));
  pattern.eval = {"test_*.bin"};
  config.source = pattern;
  expect_parts(error_of([&] { test::open_images(config, 1, true); }),
               {"no file matches", "--set data.cifar.eval= --set data.eval_fraction=0.1"});
  pair.train_images = "absent";
  config.source = pair;
  EXPECT_EQ(error_of([&] { open_data(config, features(), 1, true); }).find("eval_fraction"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
