// Catches members that are missed or misplaced, names that are cut, headers that are believed
// though they lie, samples put together wrongly, and shards whose policy is not followed.

#include "runtime/data/images/tar.h"

#include <gtest/gtest.h>

#include "files.h"
#include "images.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/tar_index.h"
#include "tars.h"

namespace lockstep::data {
namespace {

using test::bytes_of;
using test::error_of;
using test::expect_parts;
using test::tar_end;
using test::tar_header;
using test::tar_member;
using test::tar_of;

// The good ones; the bad ones in words.
struct Indexed {
  std::vector<TarSample> samples;
  std::vector<std::string> bad;
  int64_t hidden = 0;
};

Indexed index_of(const std::string& tar, int64_t classes = 0) {
  Indexed indexed;
  indexed.hidden = index_tar(
      bytes_of(tar),
      "t.tar",
      classes,
      [&](const TarSample& sample) { indexed.samples.push_back(sample); },
      [&](const std::string& what) { indexed.bad.push_back(what); });
  return indexed;
}

std::vector<std::pair<std::string, std::string>> members_of(const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> members;
  TarReader reader(bytes_of(tar), "t.tar");
  TarMember member;
  while (reader.next(&member))
    members.emplace_back(
        member.name,
        std::string(reinterpret_cast<const char*>(member.data.data()), member.data.size()));
  return members;
}

using Members = std::vector<std::pair<std::string, std::string>>;

TEST(Tar, GivesRegularFiles) {
  const std::string tar = tar_member("a", "first") + tar_header("d/", 0, '5') +
                          tar_header("link", 0, '2') + tar_member("d/b", std::string(512, 'x')) +
                          tar_member("c", "") + tar_end() + "rubbish";
  EXPECT_EQ(members_of(tar), (Members{{"a", "first"}, {"d/b", std::string(512, 'x')}, {"c", ""}}));
  EXPECT_EQ(members_of(tar_member("a", "1")), (Members{{"a", "1"}}));  // without its end
  EXPECT_EQ(members_of(""), Members{});
}

TEST(Tar, KnowsLongNames) {
  const std::string name(180, 'n');
  EXPECT_EQ(members_of(tar_member("short", "1", '0', "folder"))[0].first, "folder/short");
  EXPECT_EQ(members_of(tar_member("././@LongLink", name + '\0', 'L') + tar_member("n", "2"))[0],
            std::pair(name, std::string("2")));
  const std::string record = "13 path=a/bc\n";
  const Members found =
      members_of(tar_member("x", record, 'x') + tar_member("n", "2") + tar_member("next", "3"));
  EXPECT_EQ(found, (Members{{"a/bc", "2"}, {"next", "3"}}));
}

TEST(Tar, RefusesWhatIsDamaged) {
  std::string tar = tar_of({{"a", "12345"}, {"b", "6"}});
  EXPECT_EQ(members_of(tar).size(), 2u);
  expect_parts(error_of([&] { members_of(tar.substr(0, 514)); }), {"t.tar", "truncated", "byte 0"});
  expect_parts(error_of([&] { members_of(tar.substr(0, 1030)); }), {"t.tar", "byte 1024"});
  std::string flipped = tar;
  flipped[1024] = 'c';
  expect_parts(error_of([&] { members_of(flipped); }), {"byte 1024", "checksum"});
  // A header that became zeros: what follows would be lost.
  std::string hole = tar;
  hole.replace(0, 512, 512, '\0');
  expect_parts(error_of([&] { members_of(hole); }), {"t.tar", "byte 0", "zeros"});
  const std::string one_block(512, '\0');
  EXPECT_EQ(members_of(tar_member("a", "1") + one_block).size(), 1u);
  expect_parts(error_of([&] { members_of(tar_member("a", "1") + one_block + "rubbish"); }),
               {"byte 1024"});
  std::string huge = tar_header("a", 0);
  huge[124] = static_cast<char>(0x80);
  EXPECT_NE(error_of([&] { members_of(huge); }), "no error");
}

// Their data is not what the file would have: a map comes first, and the zeros are left out.
TEST(Tar, SparseMembersAreRefusedByName) {
  const std::string pax = "22 GNU.sparse.major=1\n27 GNU.sparse.name=a/b.jpg\n";
  expect_parts(
      error_of([&] { members_of(tar_member("x", pax, 'x') + tar_member("GNUSparse/b", "2")); }),
      {"t.tar", "'a/b.jpg'", "sparse"});
  expect_parts(error_of([&] { members_of(tar_member("old.jpg", "1", 'S')); }),
               {"t.tar", "'old.jpg'", "sparse"});
}

TEST(Tar, ACompressedOneIsCalledSo) {
  expect_parts(error_of([&] {
                 members_of(test::gzip(tar_of({{"a", std::string(2000, 'x')}})));
               }),
               {"t.tar", "gzip-compressed", "gunzip"});
}

TEST(TarIndex, PutsSamplesTogether) {
  const std::string tar = tar_of({{"x/1.cls", "4\n"},
                                  {"x/1.jpg", "jpeg"},
                                  {"x/1.json", "{}"},
                                  {"x/2.PNG", "png"},
                                  {"x/2.cls", " 0 "},
                                  {"readme.txt", "words"}});
  const auto [samples, bad, hidden] = index_of(tar);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].label, 4);
  EXPECT_EQ(tar.substr(samples[0].offset, samples[0].bytes), "jpeg");
  EXPECT_EQ(samples[1].label, 0);
  EXPECT_EQ(tar.substr(samples[1].offset, samples[1].bytes), "png");
  EXPECT_TRUE(bad.empty());
}

// A tar file made on a Mac has "._" members beside others, with the same endings.
TEST(TarIndex, PassesOverHiddenMembersAndReadsEndingsInCapitals) {
  const std::string attributes("\0\5\x16\7 attributes", 15);
  const std::string pax = "52 LIBARCHIVE.xattr.com.apple.quarantine=MDA4MTs2NTA\n";
  const std::string tar =
      tar_member("./._.", attributes) + tar_member("./.DS_Store", "x") +
      tar_member("./cat/._0.JPG", attributes) + tar_member("PaxHeader/0.JPG", pax, 'x') +
      tar_member("./cat/0.JPG", "jpeg") + tar_member("./cat/._0.CLS", attributes) +
      tar_member("./cat/0.CLS", "1") + tar_member("./._dog/0.jpg", "no") +
      tar_member("__MACOSX/cat/0.jpg", "no") + tar_member("PaxHeader/0.jpg", pax) + tar_end();
  const auto [samples, bad, hidden] = index_of(tar);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(tar.substr(samples[0].offset, samples[0].bytes), "jpeg");
  EXPECT_EQ(samples[0].label, 1);
  EXPECT_TRUE(bad.empty());
  EXPECT_EQ(hidden, 7);
}

TEST(TarIndex, NamesThatLookTheSameAreOneSample) {
  const auto [samples, bad, hidden] = index_of(tar_of({{"u\xCC\x88.jpg", "j"},
                                                       {"\xC3\xBC.cls",
                                                        "\xEF\xBB\xBF"
                                                        "3\r\n"}}));
  EXPECT_TRUE(bad.empty());
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].label, 3);
}

TEST(TarIndex, MembersOfASampleFollowEachOther) {
  const Indexed indexed =
      index_of(tar_of({{"a.jpg", "j"}, {"b.jpg", "j"}, {"a.cls", "1"}, {"b.cls", "1"}}));
  EXPECT_TRUE(indexed.samples.empty());
  expect_parts(indexed.bad.at(0), {"'a' has no class: no member 'a.cls' next to its image"});
  expect_parts(index_of(tar_of({{"cat/a.jpg", "j"}})).bad.at(0),
               {"'cat/a' has no class", "unpack it for data.image_folder"});
}

TEST(TarIndex, NamesAnImageOfAnotherFormat) {
  const std::string webp("RIFF\x10\0\0\0WEBPVP8 ", 16);
  const Indexed indexed = index_of(tar_of({{"a.webp", webp}, {"a.cls", "1"}}));
  ASSERT_EQ(indexed.bad.size(), 1u);
  expect_parts(indexed.bad[0], {"'a' has a class but no image", "'a.webp' is a WebP image"});
}

TEST(TarIndex, NamesWhatLacksAHalf) {
  const std::vector<std::string> bad = index_of(tar_of({{"a.jpg", "j"},
                                                        {"b.cls", "1"},
                                                        {"c.jpg", "j"},
                                                        {"c.cls", "dog"},
                                                        {"d.jpg", "j"},
                                                        {"d.cls", "-1"}}))
                                           .bad;
  ASSERT_EQ(bad.size(), 4u);
  expect_parts(bad[0], {"t.tar", "'a'", "no class"});
  expect_parts(bad[1], {"'b'", "no image"});
  expect_parts(bad[2], {"the class of 'c' is 'dog'; allowed: a number from 0 to "});
  expect_parts(bad[3], {"the class of 'd' is '-1'"});
}

TEST(TarIndex, ClassesHaveALimit) {
  const std::string tar = tar_of({{"a.jpg", "j"},
                                  {"a.cls", "2147483647"},
                                  {"b.jpg", "j"},
                                  {"b.cls", "10000000"},
                                  {"c.jpg", "j"},
                                  {"c.cls", "9999999"}});
  const auto [samples, bad, hidden] = index_of(tar);
  ASSERT_EQ(bad.size(), 2u);
  expect_parts(bad[0], {"t.tar", "'a'", "class 2147483647", "0 to 9999999"});
  expect_parts(bad[1], {"'b'", "class 10000000"});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].label, 9999999);
  expect_parts(index_of(tar, 7).bad.at(2), {"'c'", "class 9999999", "0 to 6", "7 classes"});
}

class TarShards : public ::testing::Test {
 protected:
  TarShards() {
    config_.dir = folder_.path();
    config_.image.size = 8;
    shards_.train = {"s-{0..2}.tar"};
    for (int shard = 0; shard < 3; ++shard) {
      Members members;
      for (int i = 0; i < 4; ++i) {
        const std::string key = fmt::format("k{}{}", shard, i);
        members.emplace_back(key + ".png",
                             test::encode_png(test::make_image(8, 8, 3, 4 * shard + i)));
        members.emplace_back(key + ".cls", std::to_string(shard));
      }
      folder_.write(fmt::format("s-{}.tar", shard), tar_of(members));
    }
  }
  OpenedData open(bool need_train = true) {
    config_.source = shards_;
    return test::open_images(config_, 1, need_train);
  }
  test::TemporaryFolder folder_;
  DataConfig config_;
  TarShardsConfig shards_;
};

TEST_F(TarShards, AreReadInOrder) {
  config_.image.resize = 8;
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.classes, 3);
  ASSERT_EQ(opened.train->samples(), 12);
  for (int i = 0; i < 12; ++i) {
    const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = i});
    EXPECT_EQ(sample.target[0], i / 4);
    EXPECT_EQ(sample.input, test::make_image(8, 8, 3, i).pixels) << i;
  }
  EXPECT_EQ(opened.train->order().shard_samples, (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(opened.train->order().window, 8192);
}

TEST_F(TarShards, TrainingDefinesTheClasses) {
  shards_.eval = {"s-2.tar"};
  EXPECT_EQ(open(false).summary.classes, 3);
  EXPECT_EQ(open(false).eval->samples(), 4);
  shards_.train = {"s-1.tar"};
  expect_parts(error_of([&] { open(false); }), {"s-2.tar", "class 2", "0 to 1", "2 classes"});
  shards_.classes = 7;
  EXPECT_EQ(open().summary.classes, 7);
}

// The next good sample, of the next shard where this one has no more, or the last of all.
TEST_F(TarShards, BadSamplesFollowThePolicy) {
  folder_.write("s-1.tar", tar_of({{"a.cls", "1"}, {"b.png", "p"}}));
  const std::string last = test::encode_png(test::make_image(8, 8, 3, 99));
  folder_.write("s-2.tar",
                tar_of({{"c.cls", "9"}, {"d.png", last}, {"d.cls", "2"}, {"e.cls", "x"}}));
  expect_parts(error_of([&] { open(); }), {"s-1.tar: 'a'", "no image", "SKIP"});
  config_.bad_records = BadRecords::kSkip;
  config_.max_bad_fraction = 0.45f;  // of 9: four
  const OpenedData skipped = open();
  EXPECT_EQ(skipped.train->samples(), 5);
  EXPECT_EQ(skipped.summary.bad_records, 4);
  config_.bad_records = BadRecords::kReplace;
  const OpenedData replaced = open();
  EXPECT_EQ(replaced.summary.bad_records, 4);
  ASSERT_EQ(replaced.train->samples(), 9);
  EXPECT_EQ(replaced.train->order().shard_samples, (std::vector<int64_t>{4, 5}));
  const auto wanted = test::read<uint8_t, int32_t>(*skipped.train, {.index = 4});
  for (int64_t index = 4; index < 9; ++index) {
    const auto found = test::read<uint8_t, int32_t>(*replaced.train, {.index = index});
    EXPECT_EQ(found.target[0], 2);
    EXPECT_EQ(found.input, wanted.input);
  }
  config_.max_bad_fraction = 0.4f;
  expect_parts(error_of([&] { open(); }), {"4 of 9", "max_bad_fraction = 0.4", "'a'"});
}

TEST_F(TarShards, ErrorsNameShardAndMember) {
  folder_.write("s-1.tar", tar_of({{"broken.jpg", "\xff\xd8\xff"}, {"broken.cls", "1"}}));
  const OpenedData opened = open();
  expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = 4}); }),
               {"s-1.tar: broken.jpg", "JPEG"});
  shards_.train = {"s-{0..3}.tar"};
  expect_parts(error_of([&] { open(); }), {"data.tar_shards.train", "s-3.tar"});
  folder_.write("s-3.tar", test::gzip(tar_end()));
  expect_parts(error_of([&] { open(); }), {"s-3.tar", "compressed"});
}

}  // namespace
}  // namespace lockstep::data
