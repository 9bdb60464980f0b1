// Which folders train and which evaluate. Catches: folders of a typing error or of predictions that
// become classes, sets that become classes and classes that become sets, a folder that evaluates
// although its classes are others, a choice among several folders, and given values that change.
#include "runtime/data/images/folder_layout.h"

#include <gtest/gtest.h>

#include <fstream>

#include "files.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;

class FolderLayout : public ::testing::Test {
 protected:
  // Makes an empty image, or a folder if the path ends with "/".
  void make(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      std::filesystem::create_directories((folder_.path() / path).parent_path());
      if (!path.ends_with("/")) std::ofstream(folder_.path() / path);
    }
  }
  FoundFolders find(const std::string& train, const std::string& eval, float share = 0) {
    DataConfig data;
    ImageFolderConfig source;
    source.train = train;
    source.eval = eval;
    data.source = source;
    data.dir = folder_.path();
    data.eval_fraction = share;
    return find_folders(data);
  }
  static const ImageFolderConfig& folders(const FoundFolders& found) {
    return std::get<ImageFolderConfig>(found.data.source);
  }
  // The result for train: "train", eval: "val", as "TRAIN|EVAL|SHARE".
  std::string usual(float share = 0) {
    const FoundFolders found = find("train", "val", share);
    return folders(found).train + "|" + folders(found).eval + "|" +
           fmt::format("{:g}", found.data.eval_fraction);
  }

  TemporaryFolder folder_;
};

TEST_F(FolderLayout, ConfiguredFoldersStay) {
  make({"train/cat/1.jpg", "val/cat/1.jpg", "test/cat/1.jpg", "dog/1.jpg"});
  EXPECT_EQ(usual(), "train|val|0");
  EXPECT_EQ(find("train", "val").text, "");
  EXPECT_EQ(folders(find("trian", "val")).train, "trian");  // a typing error is reported later
  EXPECT_EQ(folders(find("train", "vla")).eval, "vla");
  EXPECT_EQ(folders(find("train", "")).eval, "");
  EXPECT_EQ(find("train", "").data.eval_fraction, 0);
}

TEST_F(FolderLayout, ClassesAtTheTop) {
  make({"cat/1.jpg", "dog/sub/1.jpg", ".git/1.jpg", "__MACOSX/1.jpg", "9.png", "notes.txt"});
  EXPECT_EQ(usual(), ".||0.1");
  EXPECT_EQ(usual(0.3f), ".||0.3");
  expect_parts(find("train", "val").text,
               {"the 2 folders of", "are the classes (cat, dog)", "1 image outside", "0.1"});
  const FoundFolders without = find("train", "");  // nothing is to be evaluated
  EXPECT_EQ(folders(without).train, ".");
  EXPECT_EQ(without.data.eval_fraction, 0);
  EXPECT_EQ(folders(find("pictures", "val")).train, "pictures");
}

TEST_F(FolderLayout, AClassMayBeCalledAsASet) {
  make({"train/1.jpg", "test/1.jpg"});
  EXPECT_EQ(usual(), "train|val|0");  // two sets without classes
  make({"bus/1.jpg"});
  EXPECT_EQ(usual(), ".||0.1");
}

// `predict` reads images beside training images that are elsewhere.
TEST_F(FolderLayout, ImagesToPredictAreNoClass) {
  make({"val/1.jpg", "new/1.jpg"});
  EXPECT_EQ(usual(), "train|val|0");
  EXPECT_EQ(folders(find("train", "new")).train, "train");
}

TEST_F(FolderLayout, ImagesAtTheTopArePredicted) {
  DataConfig data;
  data.source = ImageFolderConfig{.train = ".", .eval = ""};
  data.dir = folder_.path();
  data.eval_fraction = 0.1f;
  make({"1.jpg"});
  const FoundFolders found = find_inputs(data);
  EXPECT_EQ(folders(found).eval, ".");
  EXPECT_EQ(found.data.eval_fraction, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / folders(found).train));
  expect_parts(found.text, {"the images in", "have no classes"});
  make({"cat/1.jpg"});  // then there are classes, and a part of them is held out
  EXPECT_EQ(find_inputs(data).text, "");
}

TEST_F(FolderLayout, OneClass) {
  make({"cat/1.jpg"});
  EXPECT_EQ(usual(), ".||0.1");
  expect_parts(find("train", "val").text, {"the 1 folder of", "is the class (cat)"});
}

TEST_F(FolderLayout, OtherNamesOfSets) {
  make({"Training/cat/1.jpg", "Training/dog/1.jpg"});
  EXPECT_EQ(usual(), "Training||0.1");
  make({"test/1.jpg", "testing/eel/1.jpg"});  // without classes, and with one that is not trained
  EXPECT_EQ(usual(), "Training||0.1");
  make({"TEST/cat/1.jpg"});
  EXPECT_EQ(usual(), "Training|TEST|0");
  make({"valid/dog/1.jpg"});
  EXPECT_EQ(usual(), "Training|valid|0");
  EXPECT_EQ(usual(0.2f), "Training||0.2");
  expect_parts(find("train", "val").text, {"Training' trains", "valid' evaluates"});
  make({"dev/dog/1.jpg"});
  expect_parts(error_of([&] { usual(); }, ExitCode::kUsage),
               {"data.image_folder.eval", "several folders", "dev or valid"});
}

TEST_F(FolderLayout, WhatIsExpectedIsNamed) {
  EXPECT_EQ(layout_hint("/absent"), "");
  expect_parts(layout_hint(folder_.path()), {"expected: ", "/CLASS/*.jpg", "/train/CLASS/*.jpg"});
  make({"1.jpg", "2.png"});
  expect_parts(layout_hint(folder_.path()), {"has 2 images but no folders"});
  make({"photos/cat/1.jpg"});
  expect_parts(layout_hint(folder_.path()), {"photos' has folders", "--data "});
}

}  // namespace
}  // namespace lockstep::data
