// Catches: nodes that become ops of other numbers than ONNX says: norms by groups in any of the
// ways that exporters write them, images resized by other pixels, transposed convolutions padded on
// the wrong side, recurrent layers whose outputs are of another time or direction; and what is
// refused, without a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/base/error.h"
#include "tests/reference/lowered_network.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

// Numbers from -1 to 1 in no order.
Array numbers(const Extents& extents, int64_t seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < elements(extents); ++i)
    values.push_back(std::sin(12.9898 * static_cast<double>(i + 1) + static_cast<double>(seed)));
  return array_of(ElementType::kFloat, extents, values);
}

// A network of one input, which is a parameter here, so that all there is to run is known.
struct Net {
  explicit Net(Extents extents, int64_t opset = 23) : Net(numbers(extents, 0), opset) {}
  explicit Net(Array given, int64_t opset = 23) : input(std::move(given)) {
    builder.opset(opset);
    x = add("x", input);
  }
  int parameter(const std::string& name, const Extents& extents) {
    return add(name, numbers(extents, static_cast<int64_t>(name[0])));
  }
  int constant(const std::string& name, int64_t count, double value) {
    const std::vector<double> values(static_cast<size_t>(count), value);
    return builder.initializer(name, array_of(ElementType::kFloat, {count}, values));
  }
  // The elements of the value, and its extents.
  std::vector<float> run(int value) {
    builder.file().outputs = {value};
    Classes classes;
    classes.parameter.resize(builder.file().values.size(), false);
    for (const int learns : parameters) classes.parameter[static_cast<size_t>(learns)] = true;
    const Network network = bind(builder.file(), classes, {});
    extents = network.values[static_cast<size_t>(network.outputs[0])].extents;
    const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kInference);
    pointwise_ops = lowered.ops(graph::OpKind::kPointwise) - 1;  // without that of LoweredNetwork
    return lowered.output();
  }
  // What the refusal says.
  std::string refusal(int value) {
    try {
      run(value);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  Array input;
  FileBuilder builder;
  std::vector<int> parameters;
  Extents extents;           // of what ran last
  size_t pointwise_ops = 0;  // the same
  int x = -1;

 private:
  int add(const std::string& name, Array array) {
    parameters.push_back(builder.initializer(name, std::move(array)));
    return parameters.back();
  }
};

void expect_close(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-5) << i;
}

// ---- Norms ----

// Of x (N, C, ...), with a gain and a bias for each of the channels' numbers.
std::vector<double> group_norm(const Array& x,
                               int64_t groups,
                               const std::function<double(int64_t)>& gain,
                               const std::function<double(int64_t)>& bias) {
  std::vector<double> y = x.as_double();
  const int64_t channels = x.extents[1], all = elements(x.extents) / x.extents[0];
  const int64_t of_group = all / groups, of_channel = all / channels;
  for (int64_t first = 0; first < elements(x.extents); first += of_group) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < of_group; ++i) mean += y[static_cast<size_t>(first + i)];
    mean /= static_cast<double>(of_group);
    for (int64_t i = 0; i < of_group; ++i)
      variance += std::pow(y[static_cast<size_t>(first + i)] - mean, 2);
    variance /= static_cast<double>(of_group);
    for (int64_t i = first; i < first + of_group; ++i) {
      const int64_t c = i / of_channel % channels;
      double& value = y[static_cast<size_t>(i)];
      value = (value - mean) / std::sqrt(variance + 1e-5) * gain(c) + bias(c);
    }
  }
  return y;
}

std::function<double(int64_t)> of(const Array& array, int64_t share = 1) {
  return [values = array.as_double(), share](int64_t c) {
    return values[static_cast<size_t>(c / share)];
  };
}

TEST(OnnxLoweredNorms, GroupNormalizationHasGainsOfChannels) {
  Net net({2, 6, 3, 2});
  const int y = net.builder.node("GroupNormalization",
                                 {net.x, net.parameter("scale", {6}), net.parameter("bias", {6})},
                                 {{"num_groups", int64_t{3}}});
  expect_close(net.run(y), group_norm(net.input, 3, of(numbers({6}, 's')), of(numbers({6}, 'b'))));
}

TEST(OnnxLoweredNorms, AndOfGroupsInOpset18) {
  Net net({2, 6, 3, 2}, 18);
  const int y = net.builder.node("GroupNormalization",
                                 {net.x, net.parameter("scale", {3}), net.parameter("bias", {3})},
                                 {{"num_groups", int64_t{3}}});
  expect_close(net.run(y),
               group_norm(net.input, 3, of(numbers({3}, 's'), 2), of(numbers({3}, 'b'), 2)));
}

TEST(OnnxLoweredNorms, InstanceNormalizationIsOneGroupAChannel) {
  Net net({2, 5, 7});
  const int y = net.builder.node("InstanceNormalization",
                                 {net.x, net.parameter("scale", {5}), net.parameter("bias", {5})});
  expect_close(net.run(y), group_norm(net.input, 5, of(numbers({5}, 's')), of(numbers({5}, 'b'))));
}

// As exporters write nn.GroupNorm: with gains (C, 1, 1), or made so by a node, or without.
TEST(OnnxLoweredNorms, AnInstanceNormBetweenReshapesIsAGroupNorm) {
  for (const std::string form : {"extents", "nodes", "none"}) {
    Net net({2, 6, 3, 2}, 17);
    FileBuilder& b = net.builder;
    int y = b.node("Reshape", {net.x, b.integers("groups", {0, 3, -1})});
    y = b.node("InstanceNormalization",
               {y, net.constant("ones", 3, 1), net.constant("zeros", 3, 0)});
    y = b.node("Reshape", {y, b.integers("back", {2, 6, 3, 2})});
    const auto operand = [&](const char* name) {
      if (form == "extents") return net.parameter(name, {6, 1, 1});
      return b.node("Unsqueeze",
                    {net.parameter(name, {6}), b.integers(name + std::string("_axes"), {1, 2})});
    };
    if (form != "none") {
      y = b.node("Mul", {y, operand("scale")});
      y = b.node("Add", {y, operand("bias")});
    }
    const auto number = [&](double otherwise, int64_t seed) {
      if (form != "none") return of(numbers({6}, seed));
      return std::function<double(int64_t)>([otherwise](int64_t) { return otherwise; });
    };
    expect_close(net.run(y), group_norm(net.input, 3, number(1, 's'), number(0, 'b')));
    EXPECT_EQ(net.pointwise_ops, 0u) << form << ": Mul and Add are part of the norm";
  }
}

TEST(OnnxLoweredNorms, LrnOfAnEvenWindowIsRefused) {
  Net net({1, 6, 3, 3});
  EXPECT_NE(net.refusal(net.builder.node("LRN", {net.x}, {{"size", int64_t{4}}}))
                .find("size: value is 4"),
            std::string::npos);
}

TEST(OnnxLoweredNorms, LrnSumsSquaresAroundAChannel) {
  Net net({1, 6, 2, 2});
  const std::vector<float> y = net.run(
      net.builder.node("LRN", {net.x}, {{"size", int64_t{3}}, {"alpha", 0.5f}, {"bias", 2.0f}}));
  std::vector<double> expected = net.input.as_double();
  const std::vector<double> x = expected;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i / 4;
    double sum = x[i] * x[i];
    if (c > 0) sum += x[i - 4] * x[i - 4];
    if (c < 5) sum += x[i + 4] * x[i + 4];
    expected[i] = x[i] / std::pow(2 + 0.5 / 3 * sum, 0.75);
  }
  expect_close(y, expected);
}

// ---- Resize ----

// Of one row of 4 numbers, by sizes, with the modes given.
std::vector<float> resized(int64_t to, const std::map<std::string, Attribute>& modes) {
  Net net(array_of(ElementType::kFloat, {1, 1, 1, 4}, {1, 2, 4, 8}));
  FileBuilder& b = net.builder;
  return net.run(b.node("Resize", {net.x, -1, -1, b.integers("sizes", {1, 1, 1, to})}, modes));
}

TEST(OnnxLoweredResize, ModesSayWhichPixelsAreRead) {
  const auto nearest = [](const char* coordinates, const char* mode, int64_t to) {
    return resized(to,
                   {{"coordinate_transformation_mode", std::string(coordinates)},
                    {"nearest_mode", std::string(mode)}});
  };
  using Row = std::vector<float>;
  // Centres of halves: 0.5, 2.5 of the places; ends 0 and 3; beginnings 0 and 2.
  EXPECT_EQ(nearest("half_pixel", "round_prefer_floor", 2), (Row{1, 4}));
  EXPECT_EQ(nearest("half_pixel", "round_prefer_ceil", 2), (Row{2, 8}));
  EXPECT_EQ(nearest("half_pixel", "floor", 2), (Row{1, 4}));
  EXPECT_EQ(nearest("half_pixel", "ceil", 2), (Row{2, 8}));
  EXPECT_EQ(nearest("asymmetric", "floor", 2), (Row{1, 4}));
  EXPECT_EQ(nearest("align_corners", "floor", 2), (Row{1, 8}));
  EXPECT_EQ(nearest("asymmetric", "floor", 8), (Row{1, 1, 2, 2, 4, 4, 8, 8}));
  EXPECT_EQ(nearest("pytorch_half_pixel", "floor", 1), (Row{1}));
}

TEST(OnnxLoweredResize, LinearWeighsNeighbours) {
  const auto linear = [](const char* coordinates, int64_t to) {
    return resized(to,
                   {{"mode", std::string("linear")},
                    {"coordinate_transformation_mode", std::string(coordinates)}});
  };
  using Row = std::vector<float>;
  EXPECT_EQ(linear("half_pixel", 8), (Row{1, 1.25, 1.75, 2.5, 3.5, 5, 7, 8}));
  EXPECT_EQ(linear("half_pixel", 2), (Row{1.5, 6}));
  EXPECT_EQ(linear("align_corners", 7), (Row{1, 1.5, 2, 3, 4, 6, 8}));
  EXPECT_EQ(linear("asymmetric", 8), (Row{1, 1.5, 2, 3, 4, 6, 8, 8}));
}

TEST(OnnxLoweredResize, OldUpsampleRepeatsPixels) {
  Net net({1, 2, 2, 1}, 9);
  const int scales =
      net.builder.initializer("scales", array_of(ElementType::kFloat, {4}, {1, 1, 2, 3}));
  const std::vector<float> y = net.run(net.builder.node("Upsample", {net.x, scales}));
  EXPECT_EQ(net.extents, (Extents{1, 2, 4, 3}));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], net.input.as_float()[i / 6]) << i;
}

TEST(OnnxLoweredResize, WhatIsRefused) {
  const auto refusal = [](const std::map<std::string, Attribute>& modes) {
    Net net({1, 1, 2, 4});
    FileBuilder& b = net.builder;
    return net.refusal(b.node("Resize", {net.x, -1, -1, b.integers("sizes", {1, 1, 4, 8})}, modes));
  };
  EXPECT_NE(
      refusal({{"mode", std::string("cubic")}}).find("mode: value is cubic; allowed: nearest"),
      std::string::npos);
  EXPECT_NE(refusal({{"mode", std::string("linear")}, {"antialias", int64_t{1}}})
                .find("antialias: value is 1; allowed: 0"),
            std::string::npos);
}

// ---- Transposed convolutions ----

struct Transposed {
  std::vector<int64_t> pads = {0, 0, 0, 0}, output_padding = {0, 0};
  std::string auto_pad = "NOTSET";
  int64_t stride = 2, group = 1;
};

// Each product at its place of the whole result, of which the node's part begins behind `top` and
// `left`.
std::vector<double> conv_transpose(const Array& x,
                                   const Array& w,
                                   const std::vector<double>& bias,
                                   const Transposed& t,
                                   const Extents& to,
                                   int64_t top,
                                   int64_t left) {
  std::vector<double> y(static_cast<size_t>(elements(to)));
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = bias[i / static_cast<size_t>(to[2] * to[3]) % static_cast<size_t>(to[1])];
  const std::vector<double> from = x.as_double(), weight = w.as_double();
  const Extents &e = x.extents, &k = w.extents;
  for (int64_t i = 0; i < elements(e); ++i) {
    const int64_t column = i % e[3], row = i / e[3] % e[2], c = i / e[3] / e[2] % e[1],
                  image = i / e[3] / e[2] / e[1];
    for (int64_t tap = 0; tap < k[1] * k[2] * k[3]; ++tap) {
      const int64_t across = tap % k[3], down = tap / k[3] % k[2], o = tap / k[3] / k[2];
      const int64_t h = row * t.stride + down - top, v = column * t.stride + across - left;
      if (h < 0 || h >= to[2] || v < 0 || v >= to[3]) continue;
      const int64_t channel = c / (e[1] / t.group) * k[1] + o;
      y[static_cast<size_t>(((image * to[1] + channel) * to[2] + h) * to[3] + v)] +=
          from[static_cast<size_t>(i)] * weight[static_cast<size_t>(c * k[1] * k[2] * k[3] + tap)];
    }
  }
  return y;
}

void check_conv_transpose(const Transposed& t, const Extents& expected, int64_t top, int64_t left) {
  Net net({2, 4, 3, 4});
  const Extents weight = {4, 6 / t.group, 3, 3};
  std::map<std::string, Attribute> attributes = {
      {"strides", std::vector<int64_t>{t.stride, t.stride}},
      {"group", t.group},
      {"output_padding", t.output_padding}};
  if (t.auto_pad == "NOTSET")
    attributes["pads"] = t.pads;
  else
    attributes["auto_pad"] = t.auto_pad;
  const int y =
      net.builder.node("ConvTranspose",
                       {net.x, net.parameter("weight", weight), net.parameter("bias", {6})},
                       attributes);
  const std::vector<float> got = net.run(y);
  ASSERT_EQ(net.extents, expected);
  expect_close(
      got,
      conv_transpose(
          net.input, numbers(weight, 'w'), numbers({6}, 'b').as_double(), t, expected, top, left));
}

TEST(OnnxLoweredConvTranspose, PadsAreCutOffOnTheirSides) {
  check_conv_transpose({}, {2, 6, 7, 9}, 0, 0);
  check_conv_transpose({.pads = {1, 1, 1, 1}, .output_padding = {1, 1}}, {2, 6, 6, 8}, 1, 1);
  check_conv_transpose({.pads = {0, 1, 2, 0}, .group = 2}, {2, 6, 5, 8}, 0, 1);
  check_conv_transpose({.pads = {2, 0, 0, 2}}, {2, 6, 5, 7}, 2, 0);
  check_conv_transpose({.auto_pad = "SAME_UPPER"}, {2, 6, 6, 8}, 0, 0);
  check_conv_transpose({.auto_pad = "SAME_LOWER"}, {2, 6, 6, 8}, 1, 1);
  check_conv_transpose({.stride = 1, .group = 2}, {2, 6, 5, 6}, 0, 0);
}

TEST(OnnxLoweredConvTranspose, MorePaddingThanAStrideIsRefused) {
  Net net({2, 4, 3, 4});
  const std::string refusal =
      net.refusal(net.builder.node("ConvTranspose",
                                   {net.x, net.parameter("weight", {4, 2, 3, 3})},
                                   {{"output_padding", std::vector<int64_t>{1, 1}}}));
  EXPECT_NE(refusal.find("output_padding: the output has 1 elements"), std::string::npos)
      << refusal;
}

// ---- Recurrent layers ----

// An RNN by the definition: y (T, D, N, H); the last states are those of the last step.
TEST(OnnxLoweredRecurrences, OutputsStandAtTheirTimes) {
  constexpr int64_t kTimes = 3, kBatch = 2, kFeatures = 4, kHidden = 2;
  Net net({kTimes, kBatch, kFeatures});
  const Extents w_extents = {2, kHidden, kFeatures}, r_extents = {2, kHidden, kHidden};
  const int y =
      net.builder.node("RNN",
                       {net.x,
                        net.parameter("w", w_extents),
                        net.parameter("r", r_extents),
                        net.parameter("bias", {2, 2 * kHidden})},
                       {{"hidden_size", kHidden}, {"direction", std::string("bidirectional")}},
                       2);
  const std::vector<double> x = net.input.as_double(), w = numbers(w_extents, 'w').as_double(),
                            r = numbers(r_extents, 'r').as_double(),
                            bias = numbers({2, 2 * kHidden}, 'b').as_double();
  std::vector<double> all(kTimes * 2 * kBatch * kHidden), last(2 * kBatch * kHidden);
  for (int64_t d = 0; d < 2; ++d) {
    std::vector<double> h(kBatch * kHidden, 0);
    for (int64_t step = 0; step < kTimes; ++step) {
      const int64_t t = d == 0 ? step : kTimes - 1 - step;
      std::vector<double> next(h.size());
      for (int64_t n = 0; n < kBatch; ++n) {
        for (int64_t i = 0; i < kHidden; ++i) {
          double v = bias[static_cast<size_t>(d * 2 * kHidden + i)] +
                     bias[static_cast<size_t>(d * 2 * kHidden + kHidden + i)];
          for (int64_t f = 0; f < kFeatures; ++f)
            v += w[static_cast<size_t>((d * kHidden + i) * kFeatures + f)] *
                 x[static_cast<size_t>((t * kBatch + n) * kFeatures + f)];
          for (int64_t k = 0; k < kHidden; ++k)
            v += r[static_cast<size_t>((d * kHidden + i) * kHidden + k)] *
                 h[static_cast<size_t>(n * kHidden + k)];
          next[static_cast<size_t>(n * kHidden + i)] = std::tanh(v);
          all[static_cast<size_t>(((t * 2 + d) * kBatch + n) * kHidden + i)] = std::tanh(v);
        }
      }
      h = next;
    }
    std::ranges::copy(h, last.begin() + d * kBatch * kHidden);
  }
  expect_close(net.run(y), all);
  expect_close(net.run(y + 1), last);
}

TEST(OnnxLoweredRecurrences, WhatIsRefused) {
  const auto refusal = [](const std::string& op,
                          int64_t gates,
                          const std::map<std::string, Attribute>& attributes,
                          const std::vector<int64_t>& lengths = {}) {
    Net net({3, 2, 4});
    std::vector<int> inputs = {
        net.x, net.parameter("w", {1, gates * 2, 4}), net.parameter("r", {1, gates * 2, 2})};
    if (!lengths.empty()) {
      inputs.push_back(-1);
      inputs.push_back(net.builder.initializer(
          "lengths", array_of(ElementType::kInt32, {2}, {lengths.begin(), lengths.end()})));
    }
    return net.refusal(net.builder.node(op, inputs, attributes));
  };
  EXPECT_NE(refusal("GRU", 3, {{"clip", 1.0f}}).find("clip: is not supported"), std::string::npos);
  EXPECT_NE(refusal("RNN", 1, {}, {3, 2}).find("sequence_lens: allowed: a constant of 3"),
            std::string::npos);
  EXPECT_EQ(refusal("RNN", 1, {}, {3, 3}), "");
  EXPECT_NE(
      refusal("LSTM", 4, {{"activations", std::vector<std::string>{"Sigmoid", "Relu", "Tanh"}}})
          .find("activations: value is relu"),
      std::string::npos);
}

}  // namespace
}  // namespace lockstep::onnx
