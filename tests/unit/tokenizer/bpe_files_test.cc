// Catches: a vocab.json with merges.txt whose ids differ from those of `transformers`, and files of
// other kinds that are read all the same.
#include "runtime/tokenizer/bpe_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace lockstep::tokenizer {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<uint32_t>;

const std::string kMerges = "#version: 0.2\nt h\nth e\nĠ the\ni n\n# #\nÃ ©\n1 2\n";
// Texts with merges, one of which begins with "#", composed characters and special tokens.
constexpr const char* kFirst = "the in ##123";
constexpr const char* kSecond = "e\u0301 the <mask><x>";
constexpr const char* kThird = "it'S\n the";

// Each byte has its value as id; merges and special tokens follow.
std::string vocabulary() {
  Json ids = Json::object();
  const auto add = [&](const std::string& token) { ids[token] = static_cast<int>(ids.size()); };
  for (int byte = 0; byte < 256; ++byte) add(byte_level_chars()[byte]);
  for (const char* token : {"th", "the", "Ġthe", "in", "##", "Ã©", "12"}) add(token);
  for (const char* token : {"<s>", "</s>", "<unk>", "<pad>", "<mask>"}) add(token);
  return ids.dump();
}

class BpeFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              (std::string("lockstep-bpe-") + test->name() + std::to_string(::getpid()));
    fs::create_directories(folder_);
    write("vocab.json", vocabulary());
    write("merges.txt", kMerges);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // The ids of a text with the tokens that the tokenizer adds.
  Ids ids_of(const char* text) const {
    const auto tokenizer = open_tokenizer(folder_);
    Ids ids;
    tokenizer->encoder()->encode(text, /*with_special=*/true, &ids);
    return ids;
  }
  void expect_refusal(const std::string& part) const {
    try {
      open_tokenizer(folder_);
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
};

TEST_F(BpeFiles, Gpt2) {
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(ids_of(kFirst), (Ids{257, 32, 259, 32, 260, 262, 51}));
  EXPECT_EQ(ids_of(kSecond), (Ids{101, 204, 129, 258, 32, 60, 109, 97, 115, 107, 62, 60, 120, 62}));
  EXPECT_EQ(ids_of(kThird), (Ids{105, 116, 39, 83, 10, 258}));
  EXPECT_EQ(open_tokenizer(folder_)->id_limit(), 269u);  // the class adds <|endoftext|>
}

TEST_F(BpeFiles, Gpt2WithPrefixSpaceAndEnds) {
  write("tokenizer_config.json",
        R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true,
            "add_bos_token": true, "add_eos_token": true, "bos_token": "<s>",
            "eos_token": "</s>", "unk_token": "<unk>"})");
  EXPECT_EQ(ids_of(kFirst), (Ids{263, 258, 32, 259, 32, 260, 262, 51, 264}));
  EXPECT_EQ(ids_of(kThird), (Ids{263, 32, 105, 116, 39, 83, 10, 258, 264}));
}

TEST_F(BpeFiles, Roberta) {
  write("tokenizer_config.json",
        R"({"tokenizer_class": "RobertaTokenizer",
            "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": true}})");
  EXPECT_EQ(ids_of(kFirst), (Ids{263, 257, 32, 259, 32, 260, 262, 51, 264}));
  EXPECT_EQ(ids_of(kSecond), (Ids{263, 101, 204, 129, 258, 267, 60, 120, 62, 264}));
}

TEST_F(BpeFiles, Qwen2) {
  write("tokenizer_config.json",
        R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"300":
            {"content": "<x>", "special": false, "lstrip": false, "rstrip": false,
             "single_word": false, "normalized": false}}})");
  EXPECT_EQ(ids_of(kFirst), (Ids{257, 32, 259, 32, 260, 49, 50, 51}));
  EXPECT_EQ(ids_of(kSecond), (Ids{261, 258, 32, 60, 109, 97, 115, 107, 62, 268}));
  EXPECT_EQ(ids_of(kThird), (Ids{105, 116, 39, 83, 10, 258}));
}

TEST_F(BpeFiles, OlderFilesOfSpecialTokens) {
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  write("special_tokens_map.json",
        R"({"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"})");
  write("added_tokens.json", R"({"<y>": 269, "<x>": 268})");
  EXPECT_EQ(ids_of(kSecond), (Ids{101, 204, 129, 258, 32, 60, 109, 97, 115, 107, 62, 268}));
  EXPECT_EQ(open_tokenizer(folder_)->id_limit(), 270u);
}

TEST_F(BpeFiles, WithoutClassTheModelDecides) {
  write("config.json", R"({"model_type": "roberta"})");
  EXPECT_EQ(ids_of(kFirst).front(), 263u);
  // For models with several kinds of tokenizers it is GPT-2's, and nothing is added.
  write("config.json", R"({"model_type": "llama"})");
  write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(ids_of(kFirst), (Ids{257, 32, 259, 32, 260, 262, 51}));
  EXPECT_EQ(open_tokenizer(folder_)->id_limit(), 268u);
}

TEST_F(BpeFiles, LineEndsAndMarks) {
  std::string merges = "\xEF\xBB\xBF";
  for (const char c : kMerges) merges += c == '\n' ? "\r\n" : std::string(1, c);
  write("merges.txt", merges + "\r\n");
  write("vocab.json", "\xEF\xBB\xBF" + vocabulary());
  EXPECT_EQ(ids_of(kFirst), (Ids{257, 32, 259, 32, 260, 262, 51}));
}

TEST_F(BpeFiles, OtherKindsAreNamed) {
  write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  expect_refusal("tokenizer_class is CLIPTokenizer");
  write("tokenizer_config.json", "{}");
  write("merges.txt", kMerges + "a b c\n");
  expect_refusal("merges.txt:9: the line is 'a b c'");
  write("vocab.json", R"({"a</w>": 0})");
  expect_refusal("has no token 'Ġ'");
  fs::remove(folder_ / "merges.txt");
  EXPECT_TRUE(tokenizer_file_in(folder_).empty());
  expect_refusal("has vocab.json but no merges.txt");
}

}  // namespace
}  // namespace lockstep::tokenizer
