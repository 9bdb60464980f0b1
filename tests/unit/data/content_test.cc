// The checksum by which ranks compare their data. Catches a change of a sample that it does not
// show, and a place or name of files that it does.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "files.h"
#include "images.h"
#include "runtime/data/dataset.h"

namespace lockstep::data {
namespace {

// Two images in folders of two classes; `kind` is what the second one shows.
uint64_t content_of_images(const std::string& name, int kind) {
  const test::TemporaryFolder folder;
  for (const auto& [path, shows] :
       {std::pair("train/cat/" + name, 1), std::pair(std::string("train/dog/b.png"), kind)}) {
    std::filesystem::create_directories((folder.path() / path).parent_path());
    std::ofstream(folder.path() / path, std::ios::binary)
        << test::encode_png(test::make_image(9, 9, 3, shows));
  }
  DataConfig config;
  config.dir = folder.path();
  config.image.size = 8;
  config.source = ImageFolderConfig{"train", ""};
  return test::open_images(config, 1, true).train->checksum();
}

TEST(Content, OfImagesFilesCountAndNamesDoNot) {
  const uint64_t usual = content_of_images("a.png", 2);
  EXPECT_EQ(content_of_images("a.png", 2), usual);
  EXPECT_EQ(content_of_images("c.png", 2), usual);
  EXPECT_NE(content_of_images("a.png", 3), usual);
}

class Numbers final : public Dataset {
 public:
  Numbers(int64_t samples, int64_t changed)
      : Dataset({DType::kU8, Shape{1 << 20}}, {DType::kI32, Shape{}}),
        samples_(samples),
        changed_(changed) {}
  int64_t samples() const override { return samples_; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    std::fill_n(input, input_.bytes(), static_cast<std::byte>(key.index));
    std::fill_n(target, target_.bytes(), static_cast<std::byte>(key.index == changed_));
    ++reads;
  }
  int64_t resident_bytes() const override { return 0; }
  mutable int64_t reads = 0;

 private:
  int64_t samples_, changed_;
};

TEST(Content, EverySampleCounts) {
  for (const int64_t changed : {0, 50, 99})
    EXPECT_NE(Numbers(100, changed).checksum(), Numbers(100, -1).checksum());
  EXPECT_NE(Numbers(100, -1).checksum(), Numbers(101, -1).checksum());
}

TEST(Content, OfManyDataSomeAreRead) {
  const Numbers many(5 * kMaxHashedBytes >> 20, -1);
  many.checksum();
  EXPECT_GT(many.reads, 500);
  EXPECT_LT(many.reads, 600);
}

}  // namespace
}  // namespace lockstep::data
