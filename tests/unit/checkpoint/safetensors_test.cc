// The safetensors reader: what it must read, and what it must refuse.

#include "runtime/checkpoint/format/safetensors.h"

#include <cmath>
#include <cstring>

#include "tests/reference/text_checks.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

std::string file_text(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + std::string(data_bytes, 'd');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "test.safetensors");
}

std::string refusal(const std::string& header, size_t data_bytes) {
  const std::string error = error_of([&] { parse(file_text(header, data_bytes)); });
  EXPECT_EQ(error.find('\n'), std::string::npos);
  return error;
}

constexpr char kOne[] = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(SafetensorsHeader, ReadsEntriesInTheOrderOfTheirData) {
  const SafetensorsHeader header = parse(file_text(
      R"({"late":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"__metadata__":{"k":"v"},)"
      R"("early":{"data_offsets":[0,8],"shape":[],"dtype":"I64"},)"
      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[20,20]}}   )",
      20));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "early");
  EXPECT_EQ(header.entries[0].elements, 1);
  EXPECT_EQ(header.entries[1].name, "late");
  EXPECT_EQ(header.entries[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.entries[1].begin, 8u);
  EXPECT_EQ(header.entries[2].elements, 0);
  EXPECT_EQ(header.metadata.at("k"), "v");
}

TEST(SafetensorsHeader, NoTensorsAtAll) { EXPECT_TRUE(parse(file_text("{}", 0)).entries.empty()); }

struct Refused {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* message;  // a part of it
};

class SafetensorsRefusal : public ::testing::TestWithParam<Refused> {};

TEST_P(SafetensorsRefusal, Says) {
  EXPECT_CONTAINS(refusal(GetParam().header, GetParam().data_bytes), GetParam().message);
}

#define T(dtype, shape, offsets) \
  "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

INSTANTIATE_TEST_SUITE_P(
    Headers,
    SafetensorsRefusal,
    ::testing::Values(
        Refused{"Empty", "", 0, "does not begin with '{'"},
        Refused{"Array", "[]", 0, "does not begin with '{'"},
        Refused{"Space", " {}", 0, "does not begin with '{'"},
        Refused{"Unclosed", "{", 0, "malformed JSON"},
        Refused{"Trailing", "{}x", 0, "malformed JSON"},
        Refused{"BadUtf8", "{\"\xff\":" T("U8", "0", "0,0") "}", 0, "malformed JSON"},
        Refused{"Hole", "{\"a\":" T("U8", "2", "1,3") "}", 3, "gap"},
        Refused{"HoleBetween",
                "{\"a\":" T("U8", "2", "0,2") ",\"b\":" T("U8", "1", "3,4") "}",
                4,
                "gap"},
        Refused{"Overlap",
                "{\"a\":" T("U8", "2", "0,2") ",\"b\":" T("U8", "2", "1,3") "}",
                3,
                "overlap"},
        Refused{"Spare", "{\"a\":" T("U8", "2", "0,2") "}", 3, "bytes to spare"},
        Refused{"Short", "{\"a\":" T("U8", "4", "0,4") "}", 3, "truncated"},
        Refused{"Backwards", "{\"a\":" T("U8", "2", "4,2") "}", 4, "bad data_offsets"},
        Refused{"OneOffset", "{\"a\":" T("U8", "2", "2") "}", 2, "bad data_offsets"},
        Refused{"ThreeOffsets", "{\"a\":" T("U8", "2", "0,2,2") "}", 2, "more than two"},
        Refused{"WrongSize", "{\"a\":" T("F32", "2", "0,4") "}", 4, "F32 of its shape needs 8"},
        Refused{"Overflow", "{\"a\":" T("U8", "4294967296,4294967296", "0,0") "}", 0, "too large"},
        Refused{"OverflowInBytes",
                "{\"a\":" T("F64", "2305843009213693952", "0,0") "}",
                0,
                "too large"},
        Refused{"HugeExtent", "{\"a\":" T("U8", "9223372036854775808", "0,0") "}", 0, "extent"},
        Refused{"Negative", "{\"a\":" T("U8", "-1", "0,0") "}", 0, "negative"},
        Refused{"Float", "{\"a\":" T("U8", "1.0", "0,1") "}", 1, "not a 64-bit unsigned integer"},
        Refused{"BeyondUint64",
                "{\"a\":" T("U8", "1", "0,18446744073709551617") "}",
                1,
                "not a 64-bit unsigned integer"},
        Refused{"UnknownDtype", "{\"a\":" T("Q4", "1", "0,1") "}", 1, "unknown dtype 'Q4'"},
        Refused{"DuplicateName",
                "{\"a\":" T("U8", "1", "0,1") ",\"a\":" T("U8", "1", "1,2") "}",
                2,
                "duplicate tensor name 'a'"},
        Refused{"DuplicateField",
                R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                1,
                "a field twice"},
        Refused{"MissingField", R"({"a":{"dtype":"U8","shape":[1]}})", 1, "lacks one of"},
        Refused{"UnknownField",
                R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})",
                1,
                "unknown field 'x'"},
        Refused{"TwoMetadata", R"({"__metadata__":{},"__metadata__":{}})", 0, "two '__metadata__'"},
        Refused{
            "DuplicateMetadata", R"({"__metadata__":{"a":"","a":""}})", 0, "duplicate metadata"},
        Refused{
            "NumberInMetadata", R"({"__metadata__":{"a":1}})", 0, "a number where none is allowed"},
        Refused{
            "NestedMetadata", R"({"__metadata__":{"a":{}}})", 0, "an object where none is allowed"},
        Refused{"NestedShape",
                R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
                1,
                "an array where none is allowed"},
        Refused{"StringInShape",
                R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
                1,
                "a string where none is allowed"},
        Refused{"DtypeNumber",
                R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
                1,
                "a number where none is allowed"},
        Refused{"DtypeObject",
                R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,1]}})",
                1,
                "an object where none is allowed"},
        Refused{"NullTensor", R"({"a":null})", 0, "a null where none is allowed"},
        Refused{"TrueTensor", R"({"a":true})", 0, "a boolean where none is allowed"},
        Refused{"TensorArray", R"({"a":[]})", 0, "an array where none is allowed"},
        Refused{"TensorString", R"({"a":"b"})", 0, "a string where none is allowed"}),
    [](const auto& info) { return std::string(info.param.name); });
#undef T

TEST(SafetensorsHeader, DeepNestingEndsEarly) {
  EXPECT_CONTAINS(refusal("{\"a\":" + std::string(1'000'000, '['), 0), "an array where none");
}

TEST(SafetensorsHeader, LengthFieldThatLies) {
  std::string file = file_text(kOne, 8);
  for (const uint64_t length : {uint64_t{0},
                                file.size() - 7,
                                kMaxSafetensorsHeaderBytes + 1,
                                ~uint64_t{0},
                                ~uint64_t{0} - 7}) {
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_NE(error_of([&] { parse(file); }), "") << length;
  }
}

TEST(SafetensorsHeader, EveryPrefixIsRefused) {
  const std::string file = file_text(kOne, 8);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(error_of([&] { parse(file.substr(0, size)); }), "") << size;
  }
  EXPECT_EQ(error_of([&] { parse(file); }), "");
}

// Mutated headers either parse or throw; run under sanitizers this finds reads out of bounds.
TEST(SafetensorsHeader, MutationsNeverCrash) {
  const std::string original = file_text(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})",
      8);
  int parsed = 0;
  for (uint64_t trial = 0; trial < 20000; ++trial) {
    std::string file = original;
    const Philox4 random = philox({3, 0, 0, 0}, trial);
    const int changes = 1 + static_cast<int>(random.word[0] % 3);
    for (int i = 0; i < changes; ++i) {
      const Philox4 draw = philox({4, 0, static_cast<uint32_t>(i), 0}, trial);
      file[draw.word[0] % file.size()] = static_cast<char>(draw.word[1]);
    }
    parsed += error_of([&] { parse(file); }).empty();
  }
  EXPECT_GT(parsed, 0);
  EXPECT_LT(parsed, 20000);
}

TEST(SafetensorsFile, WritesAndReadsBack) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "t.safetensors";
  const std::vector<float> b = random_values(12, 1), a = random_values(5, 2);
  const WrittenFile written =
      write_safetensors(path, {{"b", {3, 4}, b}, {"a", {5}, a}}, {{"k", "v"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.file_bytes(), written.bytes);
  EXPECT_EQ(file.header_checksum(), written.header_checksum);
  EXPECT_EQ(file.header().data_start % 64, 0u);
  EXPECT_EQ(file.header().metadata.at("k"), "v");
  ASSERT_EQ(file.header().entries.size(), 2u);
  EXPECT_EQ(file.header().entries[0].name, "a");
  std::vector<float> back(12);
  file.read_weights(*file.find("b"), back.data());
  EXPECT_EQ(back, b);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(SafetensorsFile, ConvertsHalfAndBfloat) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "t.safetensors";
  const uint16_t words[] = {0x3c00,
                            0xc000,
                            0x0001,
                            0x83ff,
                            0x7bff,
                            0x8000,  // F16
                            0x3f80,
                            0xc000,
                            0x0001,
                            0x8000,   // BF16
                            0x0000};  // I16
  std::string text = file_text(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},)"
                               R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[12,20]},)"
                               R"("i":{"dtype":"I16","shape":[1],"data_offsets":[20,22]}})",
                               0);
  text.append(reinterpret_cast<const char*>(words), sizeof(words));
  set_bytes(path, text);
  const SafetensorsFile file(path);
  std::vector<float> half(6), bfloat(4);
  file.read_weights(*file.find("h"), half.data());
  EXPECT_EQ(half, (std::vector<float>{1.0f, -2.0f, 0x1p-24f, -0x1.ff8p-15f, 65504.0f, -0.0f}));
  EXPECT_TRUE(std::signbit(half[5]));
  file.read_weights(*file.find("b"), bfloat.data());
  EXPECT_EQ(bfloat, (std::vector<float>{1.0f, -2.0f, 0x1p-133f, -0.0f}));
  EXPECT_CONTAINS(error_of([&] { file.read_weights(*file.find("i"), half.data()); }),
                  "dtype I16; expected: F32, F16 or BF16");
}

// Wherever in a part it lies that is looked at at once, and behind the last whole one.
TEST(SafetensorsFile, RefusesWeightsThatAreNotFinite) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "t.safetensors";
  constexpr size_t kElements = 600'001;  // three parts
  const std::vector<float> finite = random_values(kElements, 1);
  std::vector<float> back(kElements);
  for (const float value : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const size_t place : {size_t{0}, size_t{1023}, size_t{262'144}, kElements - 1}) {
      std::vector<float> values = finite;
      values[place] = value;
      write_safetensors(path, {{"a", {kElements}, values}, {"b", {kElements}, finite}}, {});
      const SafetensorsFile file(path);
      EXPECT_CONTAINS(error_of([&] { file.read_weights(*file.find("a"), back.data()); }),
                      "t.safetensors: tensor 'a' has a value that is not finite");
      file.read_weights(*file.find("b"), back.data());
      EXPECT_EQ(back, finite);
    }
  }
  for (const FileDtype dtype : {FileDtype::kF16, FileDtype::kBf16}) {
    const std::vector<float> largest = {65504.0f, -65504.0f, 0x1p-24f, -0.0f};
    const std::vector<float> infinite = {1.0f, HUGE_VALF};
    write_safetensors(
        path, {{"a", {4}, largest}, {"b", {2}, infinite}}, {}, {.durable = false, .dtype = dtype});
    const SafetensorsFile file(path);
    file.read_weights(*file.find("a"), back.data());
    EXPECT_EQ(back[2], 0x1p-24f);
    EXPECT_CONTAINS(error_of([&] { file.read_weights(*file.find("b"), back.data()); }),
                    "tensor 'b' has a value that is not finite");
  }
}

TEST(SafetensorsFile, TellsAPointerOfGitLfs) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "t.safetensors";
  set_bytes(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile file(path); }), "is a pointer of Git LFS");
}

TEST(SafetensorsFile, WhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile file(folder.path() / "absent"); }), "absent");
  EXPECT_NE(error_of([&] { SafetensorsFile file(folder.path()); }), "");
  set_bytes(folder.path() / "empty", "");
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile file(folder.path() / "empty"); }), "0 bytes");
}

// A file that loses its end while it is open gives an error, not a signal.
TEST(SafetensorsFile, ShrinksWhileOpen) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "t.safetensors";
  const std::vector<float> values = random_values(100'000, 1);
  write_safetensors(path, {{"a", {100'000}, values}}, {});
  const SafetensorsFile file(path);
  fs::resize_file(path, 5000);
  std::vector<float> back(values.size());
  EXPECT_CONTAINS(error_of([&] { file.read_weights(*file.find("a"), back.data()); }), "shrank");
}

}  // namespace
}  // namespace lockstep::checkpoint
