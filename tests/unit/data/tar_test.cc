// Catches members that are missed or misplaced, names that are cut, headers that are believed
// though they lie, samples put together wrongly, and shards whose policy is not followed.

#include "runtime/data/tar.h"

#include <gtest/gtest.h>

#include "files.h"
#include "pictures.h"
#include "runtime/data/dataset.h"
#include "runtime/data/tar_index.h"
#include "tars.h"

namespace lockstep {
namespace {

using test::bytes_of;
using test::error_of;
using test::expect_parts;
using test::tar_end;
using test::tar_header;
using test::tar_member;
using test::tar_of;

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
  std::string huge = tar_header("a", 0);
  huge[124] = static_cast<char>(0x80);
  EXPECT_NE(error_of([&] { members_of(huge); }), "no error");
}

TEST(TarIndex, PutsSamplesTogether) {
  const std::string tar = tar_of({{"x/1.cls", "4\n"},
                                  {"x/1.jpg", "jpeg"},
                                  {"x/1.json", "{}"},
                                  {"x/2.PNG", "png"},
                                  {"x/2.cls", " 0 "},
                                  {"readme.txt", "words"}});
  int bad = 0;
  const auto samples = index_tar(bytes_of(tar), "t.tar", [&](const std::string&) { ++bad; });
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].label, 4);
  EXPECT_EQ(tar.substr(samples[0].offset, samples[0].bytes), "jpeg");
  EXPECT_EQ(samples[1].label, 0);
  EXPECT_EQ(tar.substr(samples[1].offset, samples[1].bytes), "png");
  EXPECT_EQ(bad, 0);
}

TEST(TarIndex, NamesWhatLacksAHalf) {
  std::vector<std::string> bad;
  index_tar(bytes_of(tar_of({{"a.jpg", "j"},
                             {"b.cls", "1"},
                             {"c.jpg", "j"},
                             {"c.cls", "dog"},
                             {"d.jpg", "j"},
                             {"d.cls", "-1"}})),
            "t.tar",
            [&](const std::string& what) { bad.push_back(what); });
  ASSERT_EQ(bad.size(), 4u);
  expect_parts(bad[0], {"t.tar", "'a'", "no class"});
  expect_parts(bad[1], {"'b'", "no image"});
  expect_parts(bad[2], {"'c'", "no number"});
  expect_parts(bad[3], {"'d'", "no number"});
}

TEST(TarIndex, ExpandsBraces) {
  EXPECT_EQ(expand_braces({"a-{08..11}.tar", "b"}, "f"),
            (std::vector<std::string>{"a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar", "b"}));
  EXPECT_EQ(expand_braces({"{0..1}{5..5}"}, "f"), (std::vector<std::string>{"05", "15"}));
  for (const char* bad : {"{", "}", "{1}", "{2..1}", "{a..b}", "}{", "{1..9999999999}", "{..}"})
    expect_parts(error_of([&] { expand_braces({bad}, "data.f"); }, ExitCode::kUsage),
                 {"data.f", "allowed"});
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
                             test::encode_png(test::make_picture(8, 8, 3, 4 * shard + i)));
        members.emplace_back(key + ".cls", std::to_string(shard));
      }
      folder_.write(fmt::format("s-{}.tar", shard), tar_of(members));
    }
  }
  OpenedData open(bool need_train = true) {
    config_.source = shards_;
    return open_images(config_, 1, need_train);
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
    EXPECT_EQ(sample.input, test::make_picture(8, 8, 3, i).pixels) << i;
  }
  EXPECT_EQ(opened.train->order().shard_samples, (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(opened.train->order().window, 8192);
}

TEST_F(TarShards, TrainingDefinesTheClasses) {
  shards_.eval = {"s-2.tar"};
  EXPECT_EQ(open(false).summary.classes, 3);
  EXPECT_EQ(open(false).eval->samples(), 4);
  shards_.train = {"s-1.tar"};
  expect_parts(error_of([&] { open(false); }), {"s-2.tar", "class 2", "not below 2"});
  shards_.classes = 7;
  EXPECT_EQ(open().summary.classes, 7);
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
}  // namespace lockstep
