// Elements of tensors, however they are stored, and claims that they do not keep.

#include <filesystem>

#include "models/onnx/network.h"
#include "tests/reference/temporary_folder.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

std::string with_tensor(const std::string& tensor) {
  return model({{node("Odd", {"x", "w"}, {"y"})}, {tensor}});
}

std::vector<double> values_of(const std::string& tensor) {
  return parsed(with_tensor(tensor)).initializers.at(0).array.as_double();
}

TEST(OnnxTensors, TypedFields) {
  using Values = std::vector<double>;
  EXPECT_EQ(values_of(tensor("w", {2}, 1, bytes(4, raw<float>({1.5f, -2})))), (Values{1.5, -2}));
  EXPECT_EQ(values_of(tensor("w", {2}, 11, bytes(10, raw<double>({1e300, -2})))),
            (Values{1e300, -2}));
  EXPECT_EQ(values_of(tensor("w", {2}, 2, bytes(5, packed({255, 0})))), (Values{255, 0}));
  EXPECT_EQ(values_of(tensor("w", {2}, 3, bytes(5, packed({-128, 127})))), (Values{-128, 127}));
  EXPECT_EQ(values_of(tensor("w", {1}, 4, bytes(5, packed({65535})))), (Values{65535}));
  EXPECT_EQ(values_of(tensor("w", {1}, 5, bytes(5, packed({-32768})))), (Values{-32768}));
  EXPECT_EQ(values_of(tensor("w", {2}, 6, bytes(5, packed({-7, 7})))), (Values{-7, 7}));
  EXPECT_EQ(values_of(tensor("w", {2}, 7, bytes(7, packed({-7, 7})))), (Values{-7, 7}));
  EXPECT_EQ(values_of(tensor("w", {2}, 9, bytes(5, packed({1, 0})))), (Values{1, 0}));
  EXPECT_EQ(values_of(tensor("w", {2}, 10, bytes(5, packed({0x3c00, 0xc000})))), (Values{1, -2}));
  EXPECT_EQ(values_of(tensor("w", {2}, 16, bytes(5, packed({0x3f80, 0xc000})))), (Values{1, -2}));
  EXPECT_EQ(values_of(tensor("w", {1}, 12, bytes(11, packed({4294967295})))),
            (Values{4294967295.0}));
  EXPECT_EQ(values_of(tensor("w", {1}, 13, bytes(11, packed({3})))), (Values{3}));
  EXPECT_EQ(values_of(tensor("w", {2}, 6, integer(5, 8) + integer(5, 9))),
            (Values{8, 9}));  // not packed
  EXPECT_EQ(values_of(tensor("w", {}, 1, bytes(9, raw<float>({3})))), (Values{3}));
  EXPECT_EQ(values_of(tensor("w", {0, 5}, 1, "")), Values{});
  const Array text =
      parsed(with_tensor(tensor("w", {1}, kString, bytes(6, "a")))).initializers[0].array;
  EXPECT_EQ(text.type, ElementType::kString);
}

TEST(OnnxTensors, ClaimsThatAreNotKept) {
  const auto refused = [](const std::string& tensor, const std::string& part) {
    expect_refused(with_tensor(tensor), "m.onnx: initializer 'w': " + part);
  };
  const std::string two = bytes(9, raw<float>({1, 2}));
  refused(tensor("w", {3}, 1, two), "its raw data has 8 bytes; must have 12 for its extents (3)");
  refused(tensor("w", {3}, 1, bytes(4, raw<float>({1, 2}))), "has 2 elements; must have 3");
  refused(tensor("w", {2}, 1, ""), "has 0 elements; must have 2");
  refused(tensor("w", {-1, -2}, 1, two), "its extents are (-1, -2); none may be below 0");
  refused(tensor("w", {1LL << 40, 1LL << 40}, 1, two),
          "its extents are (1099511627776, 1099511627776), which is more than fits in memory");
  refused(tensor("w", {0, 1LL << 62, 1LL << 62}, 1, ""),
          "its extents are (0, 4611686018427387904, 4611686018427387904), which is more than fits");
  refused(tensor("w", {1LL << 40}, 1, two), "its raw data has 8 bytes; must have 4398046511104");
  refused(tensor("w", {2}, 17, two), "its elements have type 17 (float8e4m3fn); must be float,");
  refused(tensor("w", {2}, 99, two), "its elements have type 99; must be");
  refused(tensor("w", {2}, 2, bytes(5, packed({255, 256}))),
          "element 1 is 256, which is not a valid uint8");
  refused(tensor("w", {1}, 9, bytes(5, packed({2}))), "element 0 is 2, which is not a valid bool");
  refused(tensor("w", {1}, 9, bytes(9, "\x02")), "element 0 is 2, which is not a valid bool");
  refused(tensor("w", {2}, 1, two + bytes(4, raw<float>({1, 2}))),
          "has its elements in two fields");
  refused(tensor("w", {2}, 1, bytes(4, raw<float>({1, 2})) + bytes(5, packed({1}))),
          "has elements of another type");
  refused(tensor("w", {2}, 1, two + bytes(3, "")), "it is a segment");
}

class ExternalElements : public ::testing::Test {
 protected:
  ExternalElements() {
    std::filesystem::create_directory(folder_.path() / "sub");
    std::filesystem::create_directory(folder_.path() / "beside");
    folder_.write("sub/m.data", "...." + raw<float>({1, 2, 3}));
    folder_.write("beside/m.data", raw<float>({1, 2, 3, 4}));
  }
  std::string path() const { return (folder_.path() / "sub" / "m.onnx").string(); }
  static std::string file(const std::vector<std::pair<std::string, std::string>>& entries) {
    return with_tensor(tensor("w", {2}, kFloat, external(entries)));
  }
  void refused(const std::vector<std::pair<std::string, std::string>>& entries,
               const std::string& part) {
    const std::string message = refusal(file(entries), path());
    EXPECT_NE(message.find("initializer 'w': " + part), std::string::npos) << message;
  }
  TemporaryFolder folder_;
};

TEST_F(ExternalElements, AreReadWhereTheyLie) {
  for (const char* offset : {"4", "8", "5"}) {
    const File read =
        parsed(file({{"location", "m.data"}, {"offset", offset}, {"length", "8"}}), path());
    EXPECT_TRUE(read.initializers[0].external);
    const std::vector<float> values = read.initializers[0].array.as_float();
    // At 5 no float can begin: what is there is read as it is.
    if (offset == std::string("4")) {
      EXPECT_EQ(values, (std::vector<float>{1, 2}));
    } else if (offset == std::string("8")) {
      EXPECT_EQ(values, (std::vector<float>{2, 3}));
    }
  }
}

// However a tensor names the file.
TEST_F(ExternalElements, AreCopiedAFewTimes) {
  const auto with = [](int count) {
    std::vector<std::string> tensors;
    for (int i = 0; i < count; ++i)
      tensors.push_back(
          tensor("w" + std::to_string(i),
                 {2},
                 kFloat,
                 external({{"location", i % 2 == 0 ? "m.data" : "./m.data"}, {"offset", "5"}})));
    return model({{node("Odd", {"x", "w0"}, {"y"})}, tensors});
  };
  EXPECT_EQ(parsed(with(4), path()).initializers.size(), 4u);
  EXPECT_NE(
      refusal(with(5), path())
          .find("initializer 'w4': its external data is at offset 5 of 'm.data', which is not a "
                "multiple of 4; copies of such unaligned data exceed 2 times the file's size, so "
                "it must be aligned"),
      std::string::npos);
}

TEST_F(ExternalElements, StayWithinTheFolderAndTheirFile) {
  refused({}, "its elements are external, but it has no location");
  refused({{"location", "m.data"}, {"offset", "12"}},
          "its external data is 8 bytes at 12 of 'm.data', which has 16");
  refused({{"location", "m.data"}, {"offset", "18446744073709551615"}},
          "its external data is 8 bytes at");
  refused({{"location", "m.data"}, {"offset", "-4"}}, "the offset of its external data is '-4'");
  refused({{"location", "m.data"}, {"offset", "0x4"}}, "the offset of its external data is '0x4'");
  refused({{"location", "m.data"}, {"length", "12"}},
          "its external data has 12 bytes; must have 8");
  refused({{"location", "../beside/m.data"}},
          "its external data is in '../beside/m.data'; must be a path within");
  refused({{"location", (folder_.path() / "beside/m.data").string()}}, "its external data is in");
  refused({{"location", "missing"}}, "its external data is in");
  refused({{"location", "."}}, "its external data");
  const auto sub = folder_.path() / "sub";
  std::filesystem::create_symlink(folder_.path() / "beside/m.data", sub / "out");
  refused({{"location", "out"}}, "its external data is in 'out', a link that leaves the folder");
  std::filesystem::create_symlink("m.data", sub / "in");
  (void)parsed(file({{"location", "in"}}), path());
}

}  // namespace
}  // namespace lockstep::onnx
