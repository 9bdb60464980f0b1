// Files that are no networks: each is refused with a line that says why, and nothing is read beyond
// its end.

#include "models/onnx/network.h"
#include "tests/reference/temporary_folder.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

Graph relu() { return {{node("Relu", {"x"}, {"y"}, "act")}}; }

TEST(OnnxRefusals, WhatIsNoOnnxFile) {
  EXPECT_EQ(refusal(""), "m.onnx: is empty; must be an ONNX file");
  expect_refused("hello, this is a text", "m.onnx: not an ONNX file, or damaged or truncated");
  // Other kinds of files are named.
  expect_refused("<!DOCTYPE html><html>", "m.onnx: is a web page (HTML), not an ONNX file");
  expect_refused("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  expect_refused(std::string("GGUF\x03\0\0\0", 8),
                 "m.onnx: is a GGUF file, not an ONNX file; write one with torch.onnx");
  const std::string whole = model(relu());
  for (size_t length = 1; length < whole.size(); ++length) {
    const std::string message = refusal(whole.substr(0, length));
    EXPECT_NE(message.find("m.onnx: "), std::string::npos);
  }
  expect_refused(integer(1, 8), "must have a version of the format and a graph");
}

TEST(OnnxRefusals, FilesThatCannotBeRead) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder.path().string(), (folder.path() / "missing").string()})
    EXPECT_THROW(
        {
          try {
            (void)onnx::read_file(path);
          } catch (const ConfigError& error) {
            EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
            throw;
          }
        },
        ConfigError);
}

TEST(OnnxRefusals, Opsets) {
  EXPECT_EQ(refusal(model(relu(), 8)), "m.onnx: the file has opset 8 of ONNX; must be 9 to 23");
  expect_refused(model(relu(), 24), "opset 24 of ONNX; must be 9 to 23");
  (void)parsed(model(relu(), 9));
  (void)parsed(model(relu(), 23));
  expect_refused(model(relu()) + bytes(8, opset("ai.onnx", 18)), "with opset 17 and with opset 18");
  expect_refused(integer(1, 8) + bytes(7, relu().text()), "the file imports no opset of ONNX");
}

TEST(OnnxRefusals, NamesAndSources) {
  expect_refused(
      model({{node("Add", {"x", "z"}, {"y"}, "n")}}),
      "node Add \"n\" (opset 17): its input 'z' is not defined by a node, input or initializer");
  expect_refused(model({{node("Relu", {"x"}, {"z"})}}), "output 'y' is not defined by a node");
  expect_refused(model({{node("Relu", {"x"}, {"y"}), node("Neg", {"x"}, {"y"})}}),
                 "value 'y' is defined by node Relu \"\" (opset 17) and by node Neg");
  expect_refused(model({{node("Relu", {"y"}, {"x"})}}),
                 "value 'x' is defined by the inputs and by");
  expect_refused(
      model({{node("Mul", {"x", "w"}, {"y"})}, {raw_tensor("w", {1}), raw_tensor("w", {1})}}),
      "value 'w' is defined by initializer 'w' and by initializer 'w'");
  expect_refused(model({{node("Mul", {"x", "b"}, {"a"}, "n"),
                         node("Neg", {"a"}, {"b"}),
                         node("Neg", {"x"}, {"y"})}}),
                 "node Mul \"n\" (opset 17) is part of a cycle");
  Graph twice = relu();
  twice.inputs.push_back(twice.inputs[0]);
  expect_refused(model(twice), "input name 'x' is empty or occurs twice");
  Graph none = relu();
  none.outputs.clear();
  expect_refused(model(none), "the graph has no output");
  expect_refused(model({{node("", {"x"}, {"y"})}}), "has no op");
  expect_refused(
      model({{node(
          "Odd", {"x"}, {"y"}, "", {integer_attribute("a", 1), integer_attribute("a", 2)})}}),
      "attribute name 'a' is empty or occurs twice");
}

TEST(OnnxRefusals, KindsOfValues) {
  Graph sequence = relu();
  sequence.inputs = {bytes(1, "x") + bytes(2, bytes(4, ""))};
  expect_refused(model(sequence), "input 'x' is a sequence; must be a tensor");
  Graph complex = relu();
  complex.inputs = {value_info("x", 14, {"2"})};
  expect_refused(model(complex), "input 'x' has elements of type 14 (complex64)");
  Graph sparse = relu();
  sparse.more = bytes(15, "");
  expect_refused(model(sparse), "has sparse initializers");
}

TEST(OnnxRefusals, NamesCannotMoveATerminalsCursor) {
  const std::string message = refusal(model({{node("Add", {"x", "z\n"}, {"y"}, "n\x1b[2J\n")}}));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::onnx
