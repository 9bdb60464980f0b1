// ONNX files: finds reads outside the file, extents that are believed, values without a source that
// are accepted, and bytes that change where a file is written again without a change.

#include "models/onnx/read/parse_file.h"
#include "models/onnx/write/tensor_writer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/reference/onnx_bytes.h"

namespace lockstep::fuzz {
namespace {

using namespace testing::onnx_bytes;

std::string plain() {
  Graph graph{{node("Mul", {"x", "w"}, {"h"}, "/a/Mul"),
               node("Constant", {}, {"c"}, "", {tensor_attribute("value", raw_tensor("", {1, 2}))}),
               node("Odd", {"h", "c", "", "i"}, {"y"}, "n", {integer_attribute("axis", -1)})},
              {raw_tensor("w", {2, 3}),
               tensor("i", {2, 1}, kInt32, bytes(5, packed({-1, 7}))),
               tensor("h16", {1}, kHalf, bytes(5, packed({0x3c00})))}};
  graph.values = {value_info("h", kFloat, {"", "2"})};
  return model(graph);
}

std::string with_functions() {
  const std::string inner = function("mine",
                                     "Inner",
                                     {"a", "b"},
                                     {"c", "a"},
                                     {node("Odd", {"a", "b"}, {"c"}, "", {reference("k", "n")})});
  const std::string outer =
      function("mine",
               "Outer",
               {"a"},
               {"b"},
               {node("Inner", {"a"}, {"d", "e"}, "i", {reference("n", "m")}, "mine"),
                node("Add", {"d", "e"}, {"b"})},
               bytes(11, integer_attribute("m", 3)));
  return model({{node("Outer", {"x"}, {"h"}, "one", {}, "mine"),
                 node("Outer", {"h"}, {"y"}, "two", {integer_attribute("m", 4)}, "mine")}},
               23,
               {inner, outer});
}

std::string with_subgraph() {
  const Graph branch{{node("Relu", {"x"}, {"z"})}, {raw_tensor("v", {1})}, {}, {}};
  const std::string graph = bytes(1, "then_branch") + bytes(6, branch.text()) + integer(20, 5);
  return model({{node("If", {"x"}, {"y"}, "", {graph})},
                {tensor("e",
                        {2},
                        kFloat,
                        external({{"location", "weights"}, {"offset", "0"}, {"length", "8"}}))}});
}

onnx::Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void check(const onnx::File& file) {
  std::vector<bool> known(file.values.size(), false);
  const auto is_known = [&](int value) {
    if (value < -1 || value >= static_cast<int>(known.size())) fail("a value that is none");
    return value < 0 || known[static_cast<size_t>(value)];
  };
  for (size_t i = 0; i < known.size(); ++i)
    known[i] = file.values[i].initializer >= 0 || file.values[i].constant.has_value();
  for (const int input : file.inputs) known.at(static_cast<size_t>(input)) = true;
  for (const onnx::Node& node : file.nodes) {
    for (const int input : node.inputs)
      if (!is_known(input)) fail("a value is used before it is computed");
    for (const int output : node.outputs) {
      if (output >= 0 && is_known(output)) fail("a value is computed twice");
      if (output >= 0) known[static_cast<size_t>(output)] = true;
    }
  }
  for (const int output : file.outputs)
    if (!is_known(output)) fail("an output without a source");
  for (const onnx::Initializer& initializer : file.initializers)
    if (initializer.array.type != onnx::ElementType::kString) (void)initializer.array.as_double();
}

void check_rewritten(onnx::Bytes bytes, const onnx::File& file) {
  onnx::TensorWriter tensors("input", "input", false);
  const onnx::ByteChain same = onnx::rewrite_model(bytes, "input", {}, tensors);
  if (!same.is(bytes)) fail("bytes change without a reason");
  std::map<std::string, onnx::Array> all;
  for (const onnx::Initializer& initializer : file.initializers)
    if (initializer.array.type != onnx::ElementType::kString)
      all[initializer.name] = initializer.array;
  onnx::TensorWriter again("input", "input", false);
  const onnx::ByteChain rope = onnx::rewrite_model(bytes, "input", all, again);
  std::string text;
  for (const onnx::Bytes piece : rope.pieces())
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  const onnx::File second = onnx::parse_file(bytes_of(text), "input");
  if (second.nodes.size() != file.nodes.size()) fail("another network was written");
}

}  // namespace

std::vector<std::string> seed_inputs() { return {plain(), with_functions(), with_subgraph()}; }

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::expect_errors_only([&] {
    const onnx::File file = onnx::parse_file(bytes, "input");
    fuzz::check(file);
    fuzz::check_rewritten(bytes, file);
  });
  return 0;
}
