#pragma once
// Configs of whole runs of networks from ONNX files, which are written here.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/reference/onnx_bytes.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::testing {

// Numbers from `low` to 1 in no order.
inline std::string onnx_weight(const std::string& name,
                               const std::vector<int64_t>& extents,
                               float low = -1) {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float draw = std::sin(12.9898f * static_cast<float>(i + 1));
    values.push_back(low + (1 - low) * (draw + 1) / 2);
  }
  namespace b = onnx_bytes;
  return b::tensor(name, extents, b::kFloat, b::bytes(9, b::raw(values)));
}

// A config that trains the network, which lies in a folder until the program ends.
inline std::string onnx_config(const std::string& name,
                               const onnx_bytes::Graph& graph,
                               const std::string& data) {
  static const TemporaryFolder folder;
  const std::string path = (folder.path() / (name + ".onnx")).string();
  std::ofstream(path, std::ios::binary) << onnx_bytes::model(graph);
  return "model { onnx { file: \"" + path + "\" } } data { " + data + R"( }
    train { global_batch: 16 lanes: 8 steps: 30 log_every: 1000000 }
    optimizer { adamw { weight_decay: 0.1 } }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.001 }
    checkpoint { every: 15 })";
}

// A convolution and a norm with running statistics.
inline std::string onnx_images_config() {
  namespace b = onnx_bytes;
  return onnx_config("images",
                     {.nodes = {b::node("Conv", {"x", "conv.weight", "conv.bias"}, {"c"}),
                                b::node("BatchNormalization",
                                        {"c", "norm.weight", "norm.bias", "norm.mean", "norm.var"},
                                        {"n"}),
                                b::node("Relu", {"n"}, {"r"}),
                                b::node("GlobalAveragePool", {"r"}, {"p"}),
                                b::node("Flatten", {"p"}, {"f"}),
                                b::node("Gemm", {"f", "head.weight", "head.bias"}, {"y"})},
                      .initializers = {onnx_weight("conv.weight", {8, 3, 3, 3}),
                                       onnx_weight("conv.bias", {8}),
                                       onnx_weight("norm.weight", {8}),
                                       onnx_weight("norm.bias", {8}),
                                       onnx_weight("norm.mean", {8}),
                                       onnx_weight("norm.var", {8}, 0.5),
                                       onnx_weight("head.weight", {8, 5}),
                                       onnx_weight("head.bias", {5})},
                      .inputs = {b::value_info("x", b::kFloat, {"batch", "3", "8", "8"})},
                      .outputs = {b::value_info("y", b::kFloat, {"batch", "5"})}},
                     "synthetic { samples: 300 height: 8 width: 8 channels: 3 classes: 5 }");
}

// Tokens, of which an LSTM predicts the next.
inline std::string onnx_tokens_config() {
  namespace b = onnx_bytes;
  constexpr int64_t kWidth = 8, kTokens = 11;
  return onnx_config(
      "tokens",
      {.nodes = {b::node("Gather", {"tokens", "x"}, {"e"}),
                 b::node("LSTM",
                         {"e", "lstm.w", "lstm.r"},
                         {"l"},
                         "",
                         {b::integer_attribute("hidden_size", kWidth),
                          b::integer_attribute("layout", 1)}),
                 b::node("Squeeze", {"l", "axes"}, {"s"}),
                 b::node("LayerNormalization", {"s", "norm.weight", "norm.bias"}, {"n"}),
                 b::node("MatMul", {"n", "head.weight"}, {"y"})},
       .initializers = {onnx_weight("tokens", {kTokens, kWidth}),
                        onnx_weight("lstm.w", {1, 4 * kWidth, kWidth}),
                        onnx_weight("lstm.r", {1, 4 * kWidth, kWidth}),
                        b::tensor("axes", {1}, b::kInt64, b::bytes(7, b::packed({2}))),
                        onnx_weight("norm.weight", {kWidth}),
                        onnx_weight("norm.bias", {kWidth}),
                        onnx_weight("head.weight", {kWidth, kTokens})},
       .inputs = {b::value_info("x", b::kInt64, {"batch", "6"})},
       .outputs = {b::value_info("y", b::kFloat, {"batch", "6", "11"})}},
      "synthetic { samples: 300 }");
}

}  // namespace lockstep::testing
