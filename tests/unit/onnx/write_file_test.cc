// A file that is written again: bytes that change without a reason, elements in the wrong tensor,
// and files that no reader takes would show.

#include "models/onnx/write/write_file.h"

#include <filesystem>

#include "models/onnx/network.h"
#include "runtime/base/file.h"
#include "tests/reference/temporary_folder.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

Array floats(const std::vector<double>& values) {
  return onnx::array_of(ElementType::kFloat, {static_cast<int64_t>(values.size())}, values);
}

class WriteOnnx : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string bytes_of(const std::string& name) const {
    return lockstep::read_file(path(name), size_t{1} << 20);
  }
  File written(const std::map<std::string, Array>& replaced, uint64_t limit = kLargestFile) {
    onnx::write_file(path("m.onnx"), path("new.onnx"), replaced, {}, limit);
    return onnx::read_file(path("new.onnx"));
  }
  void expect_refused(const std::map<std::string, Array>& replaced, const std::string& part) {
    try {
      (void)written(replaced);
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_FALSE(std::filesystem::exists(path("new.onnx")));
  }
  TemporaryFolder folder_;
};

// With fields that nobody knows, in an odd order, and a length that is written longer than need be.
std::string odd_model() {
  Graph graph{
      {node(
           "Odd", {"x", "w", "h", "c"}, {"y"}, "n", {bytes(777, "?") + integer_attribute("i", 1)}) +
           bytes(99, "unknown"),
       node("Constant", {}, {"c"}, "", {tensor_attribute("value", raw_tensor("", {5, 6}))})},
      {bytes(12, "first the comment") + raw_tensor("w", {1, 2}) + bytes(116, "more"),
       tensor("h", {2}, kHalf, bytes(5, packed({0x3c00, 0x4000})))}};
  graph.more = bytes(10, "about the graph") + integer(333, 4);
  return bytes(6, "about") + model(graph) + bytes(14, bytes(1, "key") + bytes(2, "value"));
}

TEST_F(WriteOnnx, WithoutAChangeItIsTheSameFile) {
  folder_.write("m.onnx", odd_model());
  (void)written({});
  EXPECT_EQ(bytes_of("new.onnx"), odd_model());
  EXPECT_FALSE(std::filesystem::exists(path("new.onnx.data")));
}

TEST_F(WriteOnnx, EqualElementsGiveEqualBytes) {
  folder_.write("m.onnx", odd_model());
  (void)written({{"w", floats({1, 2})}, {"h", floats({1, 2})}, {"c", floats({5, 6})}});
  EXPECT_EQ(bytes_of("new.onnx"), odd_model());
}

TEST_F(WriteOnnx, NewElementsOfTheTensorsOwnType) {
  folder_.write("m.onnx", odd_model());
  const File file =
      written({{"w", floats({3, 4})}, {"h", floats({1.0002, 3})}, {"c", floats({7, 8})}});
  EXPECT_EQ(file.initializers[0].array.as_float(), (std::vector<float>{3, 4}));
  EXPECT_EQ(file.initializers[1].array.type, ElementType::kFloat16);
  EXPECT_EQ(file.initializers[1].array.as_float(), (std::vector<float>{1, 3}));
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "c"))].constant->as_float(),
            (std::vector<float>{7, 8}));
  EXPECT_NE(bytes_of("new.onnx").find("first the comment"), std::string::npos);
}

TEST_F(WriteOnnx, TypedFieldsOfAllKinds) {
  const std::vector<std::pair<int, std::string>> kinds = {{1, bytes(4, raw<float>({0}))},
                                                          {11, bytes(10, raw<double>({0}))},
                                                          {2, bytes(5, packed({0}))},
                                                          {3, bytes(5, packed({0}))},
                                                          {4, bytes(5, packed({0}))},
                                                          {5, bytes(5, packed({0}))},
                                                          {6, bytes(5, packed({0}))},
                                                          {7, bytes(7, packed({0}))},
                                                          {9, bytes(5, packed({0}))},
                                                          {10, bytes(5, packed({0}))},
                                                          {16, bytes(5, packed({0}))},
                                                          {12, bytes(11, packed({0}))},
                                                          {13, bytes(11, packed({0}))},
                                                          {6, integer(5, 0)}};
  for (const auto& [type, elements] : kinds) {
    folder_.write("m.onnx",
                  model({{node("Odd", {"x", "w"}, {"y"})}, {tensor("w", {1}, type, elements)}}));
    const ElementType known = onnx::read_file(path("m.onnx")).initializers[0].array.type;
    const bool below_zero = type == 3 || type == 5 || type == 6 || type == 7 || type == 1;
    const double value = type == 9 ? 1 : below_zero ? -3 : 3;
    const File file = written({{"w", onnx::array_of(known, {1}, {value})}});
    EXPECT_EQ(file.initializers[0].array.as_double(), (std::vector<double>{value})) << type;
  }
}

TEST_F(WriteOnnx, NumbersOfConstantNodes) {
  const std::string number =
      bytes(1, "value_float") + varint(2 << 3 | 5) + raw<float>({1.5f}) + integer(20, 1);
  const std::string list = bytes(1, "value_floats") + varint(7 << 3 | 5) + raw<float>({1}) +
                           varint(7 << 3 | 5) + raw<float>({2}) + integer(20, 6);
  folder_.write("m.onnx",
                model({{node("Constant", {}, {"a"}, "", {number}),
                        node("Constant", {}, {"b"}, "", {list}),
                        node("Odd", {"x", "a", "b"}, {"y"})}}));
  const File file =
      written({{"a", onnx::array_of(ElementType::kFloat, {}, {4})}, {"b", floats({8, 9})}});
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "a"))].constant->as_float(),
            (std::vector<float>{4}));
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "b"))].constant->as_float(),
            (std::vector<float>{8, 9}));
  std::filesystem::remove(path("new.onnx"));
  expect_refused({{"b", floats({1, 2, 3})}},
                 "its new elements have extents (3); must be 2 numbers");
  expect_refused({{"a", floats({1})}}, "its new elements have extents (1); must be 1 number");
}

TEST_F(WriteOnnx, ExternalElementsLieBesideTheNewFile) {
  const auto place = [](const std::string& location, const std::string& offset) {
    return external(
        {{"location", location}, {"offset", offset}, {"length", "8"}, {"checksum", "abc"}});
  };
  folder_.write("m.onnx",
                model({{node("Odd", {"x", "v", "w"}, {"y"})},
                       {tensor("v", {2}, kFloat, place("m.onnx.data", "64")),
                        tensor("w", {2}, kFloat, place("m.onnx.data", "128"))}}));
  folder_.write(
      "m.onnx.data",
      std::string(64, '\0') + raw<float>({1, 2}) + std::string(56, '\0') + raw<float>({3, 4}));
  const File file = written({{"w", floats({5, 6})}});
  EXPECT_EQ(file.initializers[0].array.as_float(), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.initializers[1].array.as_float(), (std::vector<float>{5, 6}));
  EXPECT_TRUE(file.initializers[1].external);
  EXPECT_EQ(bytes_of("new.onnx").find("abc"), std::string::npos);
  EXPECT_EQ(bytes_of("new.onnx.data").size(), 136u);  // the places are kept

  // In the place of the old one, from which it is read.
  onnx::write_file(path("m.onnx"), path("m.onnx"), {{"v", floats({7, 8})}});
  const File same = onnx::read_file(path("m.onnx"));
  EXPECT_EQ(same.initializers[0].array.as_float(), (std::vector<float>{7, 8}));
  EXPECT_EQ(same.initializers[1].array.as_float(), (std::vector<float>{3, 4}));
}

TEST_F(WriteOnnx, TensorsThatShareAPlaceAreParted) {
  const std::string place = external({{"location", "m.onnx.data"}});
  folder_.write("m.onnx",
                model({{node("Odd", {"x", "v", "w"}, {"y"})},
                       {tensor("v", {2}, kFloat, place), tensor("w", {2}, kFloat, place)}}));
  folder_.write("m.onnx.data", raw<float>({1, 2}));
  const File file = written({{"w", floats({5, 6})}});
  EXPECT_EQ(file.initializers[0].array.as_float(), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.initializers[1].array.as_float(), (std::vector<float>{5, 6}));
}

TEST_F(WriteOnnx, ExternalElementsOfSubgraphsCome) {
  const std::string place = external({{"location", "m.onnx.data"}, {"length", "8"}});
  const Graph branch{{}, {tensor("inner", {2}, kFloat, place)}, {}, {}};
  const std::string attribute = bytes(1, "then_branch") + bytes(6, branch.text()) + integer(20, 5);
  folder_.write("m.onnx", model({{node("If", {"x"}, {"y"}, "", {attribute})}}));
  folder_.write("m.onnx.data", raw<float>({1, 2}));
  (void)written({});
  EXPECT_EQ(bytes_of("new.onnx.data"), raw<float>({1, 2}));
  EXPECT_NE(bytes_of("new.onnx").find("new.onnx.data"), std::string::npos);
}

TEST_F(WriteOnnx, WhatIsTooLargeGoesOutside) {
  std::vector<float> many(1000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  folder_.write("m.onnx",
                model({{node("Odd", {"x", "v", "w"}, {"y"})},
                       {raw_tensor("v", many), raw_tensor("w", many)}}));
  std::vector<double> others(1000, 7);
  const File file = written({{"w", floats(others)}}, 2000);
  EXPECT_LT(bytes_of("new.onnx").size(), 2000u);
  EXPECT_TRUE(file.initializers[0].external);
  EXPECT_EQ(file.initializers[0].array.as_float(), many);
  EXPECT_EQ(file.initializers[1].array.as_double(), others);
  std::filesystem::remove(path("new.onnx"));
  EXPECT_THROW((void)written({}, 100), ConfigError);
}

TEST_F(WriteOnnx, WhatDoesNotFitIsRefused) {
  folder_.write("m.onnx", odd_model());
  expect_refused({{"z", floats({1})}}, "its graph has no initializer or Constant node 'z'");
  expect_refused({{"w", floats({1, 2, 3})}}, "its new elements have extents (3); must have (2)");
  expect_refused({{"w", onnx::array_of_int64({2}, {1, 2})}},
                 "its new elements have type int64; must have float");
}

}  // namespace
}  // namespace lockstep::onnx
