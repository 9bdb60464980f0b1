// Catches: what PyTorch's exporter writes of parameters, buffers, detach() and folded norms, that
// is passed over; a guess that goes before it; patterns of the config that do not go before both.

#include <gtest/gtest.h>

#include "models/onnx/network.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing::onnx_bytes;
using testing::number_of;
using testing::parsed;

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";

std::string entry(uint32_t field, const std::string& key, const std::string& value) {
  return bytes(field, bytes(1, key) + bytes(2, value));
}

std::string info(const std::string& name, const std::string& key, const std::string& value) {
  return value_info(name, kFloat, {"2"}) + entry(4, key, value);
}

// x + each of the initializers.
Graph sum_of(const std::vector<std::string>& names) {
  Graph graph;
  std::string last = "x";
  for (const std::string& name : names) {
    graph.initializers.push_back(raw_tensor(name, {1.5f, 2.5f}));
    const bool end = name == names.back();
    graph.nodes.push_back(node("Add", {last, name}, {end ? "y" : name + ".sum"}));
    last = name + ".sum";
  }
  return graph;
}

Declared declared(const File& file, const std::string& name) {
  return file.values[static_cast<size_t>(testing::number_of(file, name))].declared;
}

bool learns(const File& file, const std::string& name, const Selection& how = {}) {
  return classify(file, how).parameter[static_cast<size_t>(testing::number_of(file, name))];
}

TEST(OnnxDeclared, KindsGoBeforeTheGuess) {
  Graph graph = sum_of({"val_1", "layer.bias", "layer.table", "other.bias"});
  graph.values = {info("val_1", kKind, "PARAMETER"),
                  info("layer.bias", kKind, "BUFFER"),
                  info("layer.table", kKind, "CONSTANT_TENSOR")};
  const File file = parsed(model(graph));
  EXPECT_TRUE(file.declares);
  EXPECT_EQ(declared(file, "val_1"), Declared::kParameter);
  EXPECT_EQ(declared(file, "layer.bias"), Declared::kConstant);
  EXPECT_EQ(declared(file, "layer.table"), Declared::kConstant);
  EXPECT_EQ(declared(file, "other.bias"), Declared::kNothing);
  EXPECT_TRUE(learns(file, "val_1"));
  EXPECT_FALSE(learns(file, "layer.bias"));
  EXPECT_FALSE(learns(file, "layer.table"));
  EXPECT_TRUE(learns(file, "other.bias"));
  EXPECT_FALSE(learns(file, "val_1", {.declared = false}));
  EXPECT_TRUE(learns(file, "layer.bias", {.declared = false}));
}

TEST(OnnxDeclared, TheConfigGoesBeforeTheFile) {
  Graph graph = sum_of({"val_1", "layer.bias"});
  graph.values = {info("val_1", kKind, "PARAMETER"), info("layer.bias", kKind, "BUFFER")};
  const File file = parsed(model(graph));
  const auto is = [](const char* wanted) {
    return [wanted](const std::string& name) { return name == wanted; };
  };
  const Selection turned = {.trainable = is("layer.bias"), .constant = is("val_1")};
  EXPECT_FALSE(learns(file, "val_1", turned));
  EXPECT_TRUE(learns(file, "layer.bias", turned));
}

// A pattern for a module finds the numbers of its arithmetic, too, as TorchScript's exporter names
// them.
TEST(OnnxDeclared, NumbersOfTheArithmeticCannotBeChosen) {
  Graph graph = sum_of({"layer.table"});
  graph.nodes.insert(graph.nodes.begin(),
                     {node("Constant",
                           {},
                           {"/layer/Constant_output_0"},
                           "",
                           {tensor_attribute("value", raw_tensor("", {5, 6}))}),
                      node("Mul", {"x", "/layer/Constant_output_0"}, {"h"})});
  graph.nodes.back() = node("Add", {"h", "layer.table"}, {"y"});
  const File file = parsed(model(graph));
  const auto all = [](const std::string&) { return true; };
  EXPECT_FALSE(learns(file, "/layer/Constant_output_0", {.trainable = all}));
  EXPECT_TRUE(learns(file, "layer.table", {.trainable = all}));
  EXPECT_EQ(onnx::names_of_numbers(file, true), (std::vector<std::string>{"layer.table"}));
  EXPECT_EQ(onnx::names_of_numbers(file, false).size(), 2u);
}

// Files whose values lost their entries, or whose exporter wrote them elsewhere.
TEST(OnnxDeclared, TheSignatureAndOtherPlacesTellToo) {
  Graph graph = sum_of({"w", "pe", "own"});
  graph.initializers.back() += entry(16, kKind, "PARAMETER");
  graph.more =
      entry(16,
            "pkg.torch.export.ExportedProgram.graph_signature",
            "\n# inputs\np_w: PARAMETER target='w'\nb_pe: BUFFER target='pe' persistent=True\n"
            "p_gone: PARAMETER target='gone'\nx: USER_INPUT\n\n# outputs\n"
            "g: BUFFER_MUTATION target='w'\n");
  const File file = parsed(model(graph));
  EXPECT_EQ(declared(file, "w"), Declared::kParameter);
  EXPECT_EQ(declared(file, "pe"), Declared::kConstant);
  EXPECT_EQ(declared(file, "own"), Declared::kParameter);
  EXPECT_EQ(file.lost_parameters, (std::vector<std::string>{"gone"}));
}

TEST(OnnxDeclared, WhatTheExporterComputedCountsAsWhatItIsMadeOf) {
  constexpr const char* kFrom = "pkg.onnxscript.optimizer.folded_from";
  Graph graph = sum_of({"val_7", "val_8"});
  graph.values = {info("val_7", kFrom, "['val_3', 'layer.weight']"),
                  info("val_8", kFrom, "['places', 'val_3']")};
  graph.more = entry(16,
                     "pkg.torch.export.ExportedProgram.graph_signature",
                     "# inputs\np_w: PARAMETER target='layer.weight'\nb: BUFFER target='places'\n");
  const File file = parsed(model(graph));
  EXPECT_TRUE(learns(file, "val_7"));
  EXPECT_FALSE(learns(file, "val_8"));
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "val_7"))].made_of,
            (std::vector<std::string>{"layer.weight"}));
  EXPECT_TRUE(file.lost_parameters.empty());
}

// The optimizer leaves out biases that are 0. A tied or unused parameter is in the list, but no
// node ever read it.
TEST(OnnxDeclared, ParametersThatTheExporterLeftOutAreFound) {
  Graph graph = sum_of({"head.weight"});
  graph.nodes.back() +=
      entry(9,
            "pkg.torch.onnx.fx_node",
            "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default]"
            "(args = (%x, %p_head_weight, %p_head_bias), kwargs = {})");
  graph.more = entry(16,
                     "pkg.torch.export.ExportedProgram.graph_signature",
                     "# inputs\np_head_weight: PARAMETER target='head.weight'\n"
                     "p_head_bias: PARAMETER target='head.bias'\np_head: PARAMETER target='head'\n"
                     "p_tied_weight: PARAMETER target='tied.weight'\n");
  const File file = parsed(model(graph));
  EXPECT_EQ(file.lost_parameters, (std::vector<std::string>{"head", "head.bias", "tied.weight"}));
  EXPECT_EQ(file.dropped_parameters, (std::vector<std::string>{"head.bias"}));
}

// Two gains 1 + w that were equal at first are one value in the file.
TEST(OnnxDeclared, MergedParametersAreFoundInAnyPlace) {
  constexpr const char* kFrom = "pkg.onnxscript.optimizer.folded_from";
  Graph graph = sum_of({"val_7"});
  graph.nodes = {node("Mul", {"x", "val_7"}, {"h"}), node("Mul", {"h", "val_7"}, {"y"})};
  graph.values = {info("val_7", kFrom, "['one', 'first.w']")};
  const auto merged = [&](const std::string& signature) {
    graph.more = entry(16, "pkg.torch.export.ExportedProgram.graph_signature", signature);
    const File file = parsed(model(graph));
    return merged_initializers(file, classify(file)).size();
  };
  EXPECT_EQ(merged("a: PARAMETER target='first.w'\nb: PARAMETER target='second.w'\n"), 1u);
  EXPECT_EQ(merged("a: PARAMETER target='first.w'\n"), 0u);
}

TEST(OnnxDeclared, FoldedNormsAreFoundByMetadataAndByNames) {
  const std::string classes = entry(
      9,
      "pkg.torch.onnx.class_hierarchy",
      "['Net', 'torch.nn.modules.batchnorm.BatchNorm2d', 'aten._native_batch_norm_legit_no_training.default']");
  const std::string scopes = entry(9, "pkg.torch.onnx.name_scopes", "['', 'bn1', 'op']");
  Graph graph;
  graph.nodes = {node("Gemm", {"x", "w"}, {"h"}, "folded") + classes + scopes,
                 node("Relu", {"h"}, {"r"}, "relu") + classes,
                 node("Gemm", {"r", "w"}, {"y"}, "plain")};
  graph.initializers = {tensor("w", {2, 2}, kFloat, bytes(9, raw<float>({1, 2, 3, 4})))};
  const File file = parsed(model(graph));
  ASSERT_EQ(file.folded_norms.size(), 1u);
  EXPECT_EQ(file.folded_norms[0].norm, "bn1");
  EXPECT_NE(file.folded_norms[0].layer.find("folded"), std::string::npos);

  const auto by_names = [](const std::vector<std::string>& names) {
    Graph convolutions;
    std::string last = "x";
    for (size_t i = 0; i < names.size(); i += 2) {
      const std::string next = i + 2 == names.size() ? "y" : "h" + std::to_string(i);
      convolutions.nodes.push_back(node("Conv", {last, names[i], names[i + 1]}, {next}));
      for (size_t k = i; k < i + 2; ++k)
        convolutions.initializers.push_back(raw_tensor(names[k], {1.5f}));
      last = next;
    }
    const std::string text = integer(1, 8) + bytes(2, "pytorch") + bytes(3, "2.9") +
                             bytes(7, convolutions.text()) + bytes(8, opset("", 17));
    return parsed(text).folded_norms.size();
  };
  EXPECT_EQ(by_names({"onnx::Conv_29", "onnx::Conv_30", "onnx::Conv_32", "onnx::Conv_33"}), 2u);
  EXPECT_EQ(by_names({"conv1.weight", "conv1.bias", "onnx::Conv_32", "conv2.bias"}), 0u);
  // Weights and biases that are multiplied by numbers.
  EXPECT_EQ(by_names({"onnx::Conv_46", "onnx::Conv_47", "onnx::Conv_48", "onnx::Conv_49"}), 0u);
}

TEST(OnnxDeclared, NoGradientPassesDetach) {
  Graph graph = sum_of({"w", "v"});
  graph.nodes = {node("Identity", {"w"}, {"d"}) +
                     entry(9, "pkg.torch.onnx.class_hierarchy", "['Net', 'aten.detach.default']"),
                 node("Mul", {"x", "d"}, {"h"}),
                 node("Mul", {"h", "v"}, {"y"})};
  graph.values = {info("w", kKind, "PARAMETER"), info("v", kKind, "PARAMETER")};
  const File file = parsed(model(graph));
  const Network network = bind(file, classify(file), {});
  const auto kind = [&](const char* name) {
    return network.values[static_cast<size_t>(testing::number_of(file, name))].kind;
  };
  EXPECT_EQ(kind("w"), ValueKind::kConstant);
  EXPECT_EQ(kind("v"), ValueKind::kParameter);
}

}  // namespace
}  // namespace lockstep::onnx
