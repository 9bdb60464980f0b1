// Functions of a file are replaced by their nodes: a value that two calls share, or an attribute of
// the wrong call, would show.

#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

std::string scale(const std::string& more = "") {
  return function(
      "mine",
      "Scale",
      {"in", "optional"},
      {"out"},
      {node("Odd", {"in", "optional"}, {"inner"}, "first", {reference("axis", "along")}),
       node("Relu", {"inner"}, {"out"}, "second")},
      more);
}

TEST(OnnxFunctions, EveryCallHasNodesOfItsOwn) {
  const File file =
      parsed(model({{node("Scale", {"x"}, {"h"}, "one", {integer_attribute("along", 1)}, "mine"),
                     node("Scale", {"h", "x"}, {"y"}, "two", {}, "mine")}},
                   17,
                   {scale()}));
  ASSERT_EQ(file.nodes.size(), 4u);
  EXPECT_EQ(file.nodes[0].integer("axis", -9), 1);
  EXPECT_FALSE(file.nodes[2].has("axis"));  // the second call does not have it
  EXPECT_EQ(file.nodes[0].name, "one/first");
  EXPECT_EQ(file.nodes[0].opset, 18);  // the function's own
  EXPECT_EQ(file.nodes[0].inputs, (std::vector<int>{testing::number_of(file, "x"), -1}));
  EXPECT_EQ(file.nodes[2].inputs,
            (std::vector<int>{testing::number_of(file, "h"), testing::number_of(file, "x")}));
  EXPECT_EQ(file.nodes[1].inputs, file.nodes[0].outputs);
  EXPECT_NE(file.nodes[0].outputs, file.nodes[2].outputs);
  EXPECT_EQ(file.nodes[3].outputs, file.outputs);
  EXPECT_TRUE(file.values[static_cast<size_t>(file.nodes[0].outputs[0])].of_function);
}

TEST(OnnxFunctions, DefaultsOfAttributes) {
  const File file = parsed(model({{node("Scale", {"x"}, {"y"}, "", {}, "mine")}},
                                 17,
                                 {scale(bytes(11, integer_attribute("along", 5)))}));
  EXPECT_EQ(file.nodes[0].integer("axis", -9), 5);
}

TEST(OnnxFunctions, CallsWithinCallsAndOutputsThatAreInputs) {
  const std::string outer = function(
      "mine", "Outer", {"a"}, {"b", "a"}, {node("Scale", {"a"}, {"b"}, "call", {}, "mine")});
  const File file = parsed(model(
      {{node("Outer", {"x"}, {"h", "same"}, "top", {}, "mine"), node("Add", {"h", "same"}, {"y"})}},
      17,
      {outer, scale()}));
  std::vector<std::string> ops;
  for (const Node& node : file.nodes) ops.push_back(node.op + " " + node.name);
  EXPECT_EQ(ops,
            (std::vector<std::string>{
                "Odd top/call/first", "Relu top/call/second", "Identity top", "Add "}));
  EXPECT_EQ(file.nodes[2].inputs, file.inputs);
}

TEST(OnnxFunctions, ConstantsInFunctionsHaveTheCallsValue) {
  const std::string constant =
      function("mine",
               "Number",
               {},
               {"out"},
               {node("Constant", {}, {"out"}, "", {reference("value_int", "n")})});
  const File file =
      parsed(model({{node("Number", {}, {"n"}, "", {integer_attribute("n", 12)}, "mine"),
                     node("Odd", {"x", "n"}, {"y"})}},
                   17,
                   {constant}));
  EXPECT_EQ(file.values[static_cast<size_t>(testing::number_of(file, "n"))].constant->as_int64(),
            (std::vector<int64_t>{12}));
}

TEST(OnnxFunctions, WhatIsRefused) {
  const std::string call = node("Scale", {"x"}, {"y"}, "", {}, "mine");
  expect_refused(model({{call}}), "its domain is 'mine'; must be ONNX's standard domain");
  expect_refused(model({{call}}, 17, {scale(), scale()}), "two functions are named 'mine.Scale'");
  expect_refused(
      model(
          {{call}},
          17,
          {function("mine", "Scale", {"a"}, {"b"}, {node("Scale", {"a"}, {"b"}, "", {}, "mine")})}),
      "the function calls itself");
  expect_refused(model({{node("Scale", {"x", "x", "x"}, {"y"}, "", {}, "mine")}}, 17, {scale()}),
                 "has 3 inputs and 1 outputs; the function has 2 and 1");
  expect_refused(model({{node("Relu", {"x"}, {"y"}, "", {reference("axis", "along")})}}),
                 "refers to an attribute of a call");
}

TEST(OnnxFunctions, FewBytesDoNotBecomeManyNodes) {
  std::vector<std::string> functions;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "F" + std::to_string(i + 1);
    functions.push_back(function(
        "mine",
        "F" + std::to_string(i),
        {"a"},
        {"b"},
        {node(next, {"a"}, {"c"}, "", {}, "mine"), node(next, {"c"}, {"b"}, "", {}, "mine")}));
  }
  functions.push_back(function("mine", "F40", {"a"}, {"b"}, {node("Relu", {"a"}, {"b"})}));
  expect_refused(model({{node("F0", {"x"}, {"y"}, "", {}, "mine")}}, 17, functions),
                 "it has more than 300000 nodes");
}

}  // namespace
}  // namespace lockstep::onnx
