// What a file says reaches File: wrong numbers of values, an order in which a value is used before
// it is computed, or lost extents would show.

#include "models/onnx/network.h"
#include "tests/reference/temporary_folder.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

TEST(ReadOnnx, AGraphWithAnInitializer) {
  Graph graph{{node("Mul", {"x", "w"}, {"h"}, "scale"), node("Relu", {"h"}, {"y"})},
              {raw_tensor("w", {2, 3})}};
  graph.values = {value_info("h", kFloat, {"", "2"})};
  const TemporaryFolder folder;
  folder.write("m.onnx", model(graph));
  const File file = onnx::read_file((folder.path() / "m.onnx").string());
  EXPECT_EQ(file.ir_version, 8);
  EXPECT_EQ(file.opset, 17);
  EXPECT_EQ(file.producer, "hand 1.0");
  ASSERT_EQ(file.inputs.size(), 1u);
  ASSERT_EQ(file.outputs.size(), 1u);
  const FileValue& x = file.values[static_cast<size_t>(file.inputs[0])];
  EXPECT_EQ(x.name, "x");
  ASSERT_EQ(x.extents.size(), 2u);
  EXPECT_LT(x.extents[0].extent, 0);
  EXPECT_EQ(x.extents[0].name, "batch");
  EXPECT_EQ(x.extents[1].extent, 2);
  const FileValue& h = file.values[static_cast<size_t>(testing::number_of(file, "h"))];
  EXPECT_TRUE(h.typed && h.has_extents);
  EXPECT_LT(h.extents[0].extent, 0);
  EXPECT_EQ(h.extents[0].name, "");
  ASSERT_EQ(file.initializers.size(), 1u);
  EXPECT_EQ(file.initializers[0].array.as_float(), (std::vector<float>{2, 3}));
  EXPECT_FALSE(file.initializers[0].external);
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "w"))].initializer, 0);
  ASSERT_EQ(file.nodes.size(), 2u);
  EXPECT_EQ(file.nodes[0].op, "Mul");
  EXPECT_EQ(file.nodes[0].inputs,
            (std::vector<int>{testing::number_of(file, "x"), testing::number_of(file, "w")}));
  EXPECT_EQ(file.nodes[1].outputs, (std::vector<int>{file.outputs[0]}));
}

TEST(ReadOnnx, AnInputThatAnInitializerFillsIsNone) {
  Graph graph{{node("Mul", {"x", "w"}, {"y"})}, {raw_tensor("w", {2, 3})}};
  graph.inputs.push_back(value_info("w", kFloat, {"2"}));
  const File file = parsed(model(graph));
  EXPECT_EQ(file.inputs, (std::vector<int>{testing::number_of(file, "x")}));
}

TEST(ReadOnnx, NodesAreBroughtIntoOrder) {
  const File file = parsed(model({{node("Relu", {"b"}, {"y"}),
                                   node("Neg", {"a"}, {"b"}),
                                   node("Abs", {"x"}, {"a"}),
                                   node("Exp", {"x"}, {"c"})}}));
  std::vector<std::string> ops;
  for (const Node& node : file.nodes) ops.push_back(node.op);
  EXPECT_EQ(ops, (std::vector<std::string>{"Abs", "Neg", "Relu", "Exp"}));
}

TEST(ReadOnnx, AbsentInputsAndOutputsAreBelowZero) {
  const File file =
      parsed(model({{node("Clip", {"x", "", "m"}, {"y", ""})}, {raw_tensor("m", {1})}}));
  EXPECT_EQ(file.nodes[0].inputs[1], -1);
  EXPECT_EQ(file.nodes[0].outputs, (std::vector<int>{file.outputs[0], -1}));
}

TEST(ReadOnnx, AttributesOfAllKinds) {
  const std::string floats = bytes(1, "f") + bytes(7, raw<float>({0.5f, 2})) + integer(20, 6);
  const std::string text = bytes(1, "s") + bytes(4, "SAME_UPPER") + integer(20, 3);
  const std::string graph = bytes(1, "then_branch") + bytes(6, "\x0a\x00") + integer(20, 5);
  const std::string ints = bytes(1, "untyped") + integer(8, 3) + integer(8, -1);
  const File file = parsed(model({{node("Odd",
                                        {"x"},
                                        {"y"},
                                        "n",
                                        {integer_attribute("i", -7),
                                         floats,
                                         text,
                                         graph,
                                         ints,
                                         tensor_attribute("t", raw_tensor("", {4}))})}}));
  const Node& node = file.nodes[0];
  EXPECT_EQ(node.integer("i", 0), -7);
  EXPECT_EQ(node.numbers("f"), (std::vector<float>{0.5f, 2}));
  EXPECT_EQ(node.text("s", ""), "SAME_UPPER");
  EXPECT_EQ(node.integers("untyped"), (std::vector<int64_t>{3, -1}));
  EXPECT_EQ(std::get<Array>(node.attributes.at("t")).as_float(), (std::vector<float>{4}));
  EXPECT_EQ(node.unsupported_attributes, (std::vector<std::string>{"then_branch"}));
}

TEST(ReadOnnx, ConstantNodesBecomeValues) {
  const std::string number =
      bytes(1, "value_float") + varint(2 << 3 | 5) + raw<float>({1.5f}) + integer(20, 1);
  const std::string list = bytes(1, "value_ints") + integer(8, 4) + integer(8, 5) + integer(20, 7);
  const File file = parsed(
      model({{node("Constant", {}, {"a"}, "", {number}),
              node("Constant", {}, {"b"}, "", {list}),
              node("Constant", {}, {"c"}, "", {tensor_attribute("value", raw_tensor("", {6, 7}))}),
              node("Odd", {"x", "a", "b", "c"}, {"y"})}}));
  ASSERT_EQ(file.nodes.size(), 1u);
  const auto constant = [&](const char* name) {
    return *file.values[static_cast<size_t>(testing::number_of(file, name))].constant;
  };
  EXPECT_EQ(constant("a").extents, Extents{});
  EXPECT_EQ(constant("a").as_float(), (std::vector<float>{1.5f}));
  EXPECT_EQ(constant("b").type, ElementType::kInt64);
  EXPECT_EQ(constant("b").as_int64(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(constant("c").as_float(), (std::vector<float>{6, 7}));
}

TEST(ReadOnnx, ModulesOfPyTorchAreTold) {
  const auto metadata = [](const std::string& value) {
    return bytes(9, bytes(1, "pkg.torch.onnx.name_scopes") + bytes(2, value));
  };
  const File file =
      parsed(model({{node("Conv", {"x"}, {"a"}, "n") +
                         metadata("['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']"),
                     node("Relu", {"a"}, {"b"}, "m") + metadata("['', 'relu']"),
                     node("Conv", {"b"}, {"c"}, "/layer1/layer1.0/conv1/Conv"),
                     node("Conv", {"c"}, {"d"}, "/encoder/layers.0/linear1/MatMul"),
                     node("Conv", {"d"}, {"y"}, "Conv_3")}}));
  std::vector<std::string> scopes;
  for (const Node& node : file.nodes) scopes.push_back(node.scope);
  EXPECT_EQ(scopes,
            (std::vector<std::string>{
                "layer1.0.conv1", "", "layer1.0.conv1", "encoder.layers.0.linear1", ""}));
  EXPECT_EQ(file.nodes[0].description(), "node Conv \"n\" (opset 17, in layer1.0.conv1)");
}

}  // namespace
}  // namespace lockstep::onnx
