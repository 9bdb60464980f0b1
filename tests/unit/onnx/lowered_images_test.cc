// Catches: convolutions, transposed ones and pools of one, two or three axes that read other places
// than ONNX says, on any axis, at either end or in another group, or whose gradient is not the
// slope; images resized along an axis that is not theirs; kernels and biases that are computed or
// constant, not parameters, and lose a gradient or get one.

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

using Doubles = std::vector<double>;

// Of the spatial axes.
struct ConvWindow {
  Integers kernel, strides, dilations, pads = {};  // pads before each axis, then behind each
  int64_t group = 1;
  Integers output_padding = {};

  size_t axes() const { return kernel.size(); }
  int64_t before(size_t axis) const { return pads.empty() ? 0 : pads[axis]; }
  NodeAttributes attributes() const {
    NodeAttributes all = {{"strides", strides}};
    if (!dilations.empty()) all["dilations"] = dilations;
    if (!pads.empty()) all["pads"] = pads;
    if (!output_padding.empty()) all["output_padding"] = output_padding;
    if (group > 1) all["group"] = group;
    return all;
  }
  int64_t dilation(size_t axis) const { return dilations.empty() ? 1 : dilations[axis]; }
};

// Calls body(place) for the places of such extents, in row-major order.
void for_each_place(const Integers& extents, const std::function<void(const Integers&)>& body) {
  Integers place(extents.size(), 0);
  for (int64_t i = 0; i < elements(extents); ++i) {
    int64_t rest = i;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
      place[axis] = rest % extents[axis];
    body(place);
  }
}

size_t offset(const Integers& extents, const Integers& place) {
  int64_t at = 0;
  for (size_t axis = 0; axis < extents.size(); ++axis) at = at * extents[axis] + place[axis];
  return static_cast<size_t>(at);
}

// Where tap `tap` of window `at` of a channel lies; false where that is in the padding.
bool reads(const ConvWindow& window,
           const Extents& image,
           const Integers& at,
           const Integers& tap,
           Integers& place) {
  for (size_t axis = 0; axis < window.axes(); ++axis) {
    const int64_t i = at[2 + axis] * window.strides[axis] + tap[axis] * window.dilation(axis) -
                      window.before(axis);
    if (i < 0 || i >= image[2 + axis]) return false;
    place[2 + axis] = i;
  }
  return true;
}

// y (N, O, ...) of x (N, C, ...), w (O, C / groups, ...) and a bias.
Doubles convolution(const ConvWindow& window,
                    const std::vector<Drawn>& of,
                    const std::vector<Doubles>& in,
                    const Extents& to) {
  const Extents &image = of[0].extents, &weight = of[1].extents;
  Doubles y(static_cast<size_t>(elements(to)));
  for_each_place(to, [&](const Integers& at) {
    double sum = in[2][static_cast<size_t>(at[1])];
    for_each_place({weight.begin() + 1, weight.end()}, [&](const Integers& tap) {
      Integers place = at, of_weight = {at[1]};
      of_weight.insert(of_weight.end(), tap.begin(), tap.end());
      place[1] = at[1] / (weight[0] / window.group) * weight[1] + tap[0];
      if (reads(window, image, at, {tap.begin() + 1, tap.end()}, place))
        sum += in[0][offset(image, place)] * in[1][offset(weight, of_weight)];
    });
    y[offset(to, at)] = sum;
  });
  return y;
}

// y (N, O, ...) of x (N, C, ...), w (C, O / groups, ...) and a bias: what a convolution with the
// window does to its input's gradient.
Doubles transposed(const ConvWindow& window,
                   const std::vector<Drawn>& of,
                   const std::vector<Doubles>& in,
                   const Extents& to) {
  const Extents &image = of[0].extents, &weight = of[1].extents;
  Doubles y(static_cast<size_t>(elements(to)));
  for_each_place(
      to, [&](const Integers& at) { y[offset(to, at)] = in[2][static_cast<size_t>(at[1])]; });
  for_each_place(image, [&](const Integers& at) {
    for_each_place({weight.begin() + 1, weight.end()}, [&](const Integers& tap) {
      Integers place = at, of_weight = {at[1]};
      of_weight.insert(of_weight.end(), tap.begin(), tap.end());
      place[1] = at[1] / (weight[0] / window.group) * weight[1] + tap[0];
      if (reads(window, to, at, {tap.begin() + 1, tap.end()}, place))
        y[offset(to, place)] += in[0][offset(image, at)] * in[1][offset(weight, of_weight)];
    });
  });
  return y;
}

enum class Pool { kMax, kMean, kMeanWithPadding };

Doubles pool(Pool kind,
             const ConvWindow& window,
             const Extents& image,
             const Doubles& x,
             const Extents& to) {
  Doubles y(static_cast<size_t>(elements(to)));
  for_each_place(to, [&](const Integers& at) {
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    int64_t count = 0;
    for_each_place(window.kernel, [&](const Integers& tap) {
      Integers place = at;
      if (!reads(window, image, at, tap, place)) return;
      const double value = x[offset(image, place)];
      sum += value;
      largest = std::max(largest, value);
      ++count;
    });
    if (kind == Pool::kMeanWithPadding) count = elements(window.kernel);
    y[offset(to, at)] = kind == Pool::kMax ? largest : sum / static_cast<double>(count);
  });
  return y;
}

struct ImageCase {
  std::vector<Drawn> inputs;  // x, and of convolutions w and the bias
  std::string op;
  NodeAttributes attributes;
  std::function<Doubles(const std::vector<Doubles>& inputs, const Extents& to)> judge;
};

// What weights and biases are.
enum class Weights { kParameters, kComputed, kConstants };

// The result, and for each element of each input the slope of the mean square of its distance from
// half of it.
void check(const ImageCase& of, Weights weights = Weights::kParameters) {
  FileBuilder builder;
  Classes classes;
  std::vector<int> numbers;
  std::vector<Doubles> values;
  for (const Drawn& drawn : of.inputs) {
    Doubles drawn_values;
    for (int64_t i = 0; i < elements(drawn.extents); ++i)
      drawn_values.push_back(static_cast<float>(
          std::sin(12.9898 * static_cast<double>(i + 1) + static_cast<double>(values.size()))));
    numbers.push_back(
        builder.initializer("x" + std::to_string(values.size()),
                            array_of(ElementType::kFloat, drawn.extents, drawn_values)));
    values.push_back(drawn_values);
  }
  std::vector<int> operands = numbers;
  for (size_t k = 1; weights == Weights::kComputed && k < numbers.size(); ++k)
    operands[k] = builder.node("Neg", {builder.node("Neg", {numbers[k]})});
  builder.output(builder.node(of.op, operands, of.attributes));
  classes.parameter.resize(builder.file().values.size(), false);
  const size_t learn = weights == Weights::kConstants ? 1 : numbers.size();
  for (size_t k = 0; k < learn; ++k) classes.parameter[static_cast<size_t>(numbers[k])] = true;
  const Network network = bind(builder.file(), classes, {});
  const Extents to = network.values[static_cast<size_t>(network.outputs[0])].extents;
  const Doubles wanted = of.judge(values, to);
  const std::vector<float> y =
      testing::LoweredNetwork(network, 0, graph::Purpose::kInference).output();
  ASSERT_EQ(y.size(), wanted.size());
  std::vector<float> target;
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_NEAR(y[i], wanted[i], 4e-6 * (1 + std::abs(wanted[i]))) << "element " << i;
    target.push_back(static_cast<float>(0.5 * wanted[i]));
  }
  const auto loss = [&] {
    const Doubles all = of.judge(values, to);
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) sum += (all[i] - target[i]) * (all[i] - target[i]);
    return sum / static_cast<double>(all.size());
  };
  const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kTraining, target);
  for (size_t k = 0; k < learn; ++k) {
    const Doubles gradient = lowered.gradient(numbers[k]);
    ASSERT_EQ(gradient.size(), values[k].size());
    for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 60) {
      constexpr double kStep = 1e-5;
      const double value = values[k][i];
      values[k][i] = value + kStep;
      const double above = loss();
      values[k][i] = value - kStep;
      const double slope = (above - loss()) / (2 * kStep);
      values[k][i] = value;
      ASSERT_NEAR(gradient[i], slope, 1e-5 * (1 + std::abs(slope)))
          << "input " << k << ", element " << i;
    }
  }
}

// With `outputs` of a group, of an image (2, channels, ...).
void check_convolution(const std::string& op,
                       const ConvWindow& window,
                       Integers image,
                       int64_t outputs) {
  SCOPED_TRACE(op + " of " + to_string(image) + ", kernel " + to_string(window.kernel));
  const bool back = op == "ConvTranspose";
  const int64_t channels = image[1];
  Integers weight = {back ? channels : outputs * window.group,
                     back ? outputs : channels / window.group};
  weight.insert(weight.end(), window.kernel.begin(), window.kernel.end());
  const std::vector<Drawn> inputs = {{image}, {weight}, {{outputs * window.group}}};
  for (const Weights weights : {Weights::kParameters, Weights::kComputed, Weights::kConstants})
    check({inputs,
           op,
           window.attributes(),
           [=](const std::vector<Doubles>& in, const Extents& to) {
             return (back ? transposed : convolution)(window, inputs, in, to);
           }},
          weights);
}

TEST(LoweredImages, ConvolutionsOfOneAxis) {
  check_convolution("Conv", {{3}, {1}, {}, {1, 1}}, {2, 4, 9}, 5);
  check_convolution("Conv", {{10}, {5}, {}}, {2, 1, 40}, 6);            // as wav2vec begins
  check_convolution("Conv", {{3}, {1}, {4}, {8, 0}}, {2, 4, 9}, 4);     // causal
  check_convolution("Conv", {{4}, {2}, {}, {1, 2}, 4}, {2, 4, 11}, 1);  // by channel
  check_convolution("Conv", {{1}, {1}, {}}, {2, 3, 5}, 2);
}

TEST(LoweredImages, ConvolutionsOfTwoAxes) {
  check_convolution("Conv", {{3, 2}, {2, 1}, {1, 2}, {1, 0, 0, 2}, 2}, {2, 4, 6, 5}, 3);
}

TEST(LoweredImages, ConvolutionsOfThreeAxes) {
  check_convolution("Conv", {{3, 3, 3}, {1, 1, 1}, {}, {1, 1, 1, 1, 1, 1}}, {1, 2, 4, 3, 5}, 3);
  check_convolution(
      "Conv", {{2, 3, 1}, {2, 1, 2}, {2, 1, 1}, {1, 0, 0, 2, 1, 0}}, {2, 3, 5, 4, 4}, 2);
  check_convolution("Conv", {{3, 2, 2}, {2, 2, 1}, {}, {}, 2}, {1, 4, 6, 4, 3}, 3);
  check_convolution("Conv", {{1, 1, 1}, {2, 1, 1}, {}}, {2, 3, 4, 2, 2}, 2);
  check_convolution("Conv", {{3, 1, 1}, {1, 1, 1}, {}, {1, 0, 0, 1, 0, 0}}, {2, 3, 4, 2, 2}, 2);
}

// As PyTorch's exporter writes that there is none: not for every channel.
TEST(LoweredImages, ABiasOfZerosMayHaveOtherExtents) {
  FileBuilder builder;
  const int bias = builder.initializer(
      "bias", array_of(ElementType::kFloat, {3, 2}, std::vector<double>(6, 0.0)));
  builder.output(
      builder.node("Conv", {builder.floats("x", {1, 2, 4}), builder.floats("w", {3, 2, 2}), bias}));
  EXPECT_NO_THROW(bind(builder.file(), {.parameter = std::vector<bool>(4, false)}, {}));
  builder.file().initializers[0].array = builder.file().initializers[1].array;
  EXPECT_THROW(bind(builder.file(), {.parameter = std::vector<bool>(4, false)}, {}), ConfigError);
}

TEST(LoweredImages, TransposedConvolutions) {
  const std::string op = "ConvTranspose";
  check_convolution(op, {{4}, {2}, {}, {1, 1}}, {2, 3, 5}, 2);
  check_convolution(op, {{16}, {8}, {}, {4, 4}, 2}, {2, 4, 3}, 1);
  check_convolution(op, {{3}, {3}, {2}, {2, 0}, 1, {2}}, {2, 3, 4}, 2);
  check_convolution(op, {{2, 2, 2}, {2, 2, 2}, {}}, {1, 3, 3, 2, 2}, 2);
  check_convolution(op, {{2, 1, 2}, {2, 1, 2}, {}, {}, 2}, {2, 4, 2, 2, 2}, 3);
  check_convolution(
      op, {{3, 2, 3}, {2, 1, 2}, {1, 2, 1}, {1, 0, 0, 0, 1, 1}, 1, {1, 0, 1}}, {1, 2, 3, 3, 2}, 2);
  check_convolution(
      op, {{3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {2, 0, 0, 1, 0, 0}, 2}, {1, 4, 5, 2, 1}, 1);
}

void check_pools(const ConvWindow& window, const Extents& image, int64_t ceil_mode = 0) {
  SCOPED_TRACE("image " + to_string(image) + ", kernel " + to_string(window.kernel));
  for (const Pool kind : {Pool::kMax, Pool::kMean, Pool::kMeanWithPadding}) {
    if (kind != Pool::kMax && !window.dilations.empty()) continue;
    if (kind == Pool::kMeanWithPadding && ceil_mode != 0) continue;
    NodeAttributes attributes = window.attributes();
    attributes["kernel_shape"] = window.kernel;
    attributes["ceil_mode"] = ceil_mode;
    if (kind == Pool::kMeanWithPadding) attributes["count_include_pad"] = int64_t{1};
    check({{{image}},
           kind == Pool::kMax ? "MaxPool" : "AveragePool",
           attributes,
           [=](const std::vector<Doubles>& in, const Extents& to) {
             return pool(kind, window, image, in[0], to);
           }});
  }
}

TEST(LoweredImages, Pools) {
  check_pools({{2}, {2}, {}}, {2, 3, 7});
  check_pools({{3}, {2}, {}, {1, 1}}, {2, 3, 8});
  check_pools({{3}, {2}, {2}, {1, 2}}, {2, 3, 9});
  check_pools({{3}, {2}, {}}, {2, 3, 8}, 1);
  check_pools({{3, 2}, {2, 1}, {}, {1, 0, 0, 1}}, {2, 3, 7, 4});
  check_pools({{2, 2, 2}, {2, 2, 2}, {}}, {2, 3, 4, 4, 5});
  check_pools({{3, 2, 3}, {2, 1, 2}, {}, {1, 1, 0, 1, 0, 1}}, {1, 2, 5, 4, 5});
  check_pools({{3, 1, 1}, {1, 1, 1}, {}, {1, 0, 0, 1, 0, 0}}, {1, 2, 4, 3, 2});
  check_pools({{1, 2, 3}, {1, 2, 1}, {}}, {1, 2, 3, 4, 5});
  check_pools({{3, 2, 2}, {2, 3, 2}, {}}, {1, 2, 6, 5, 5}, 1);
  // Whole images, of more pixels than other windows may have.
  check_pools({{17, 16}, {17, 16}, {}}, {2, 3, 17, 16});
  check_pools({{2, 17, 16}, {1, 1, 1}, {}}, {1, 2, 3, 17, 16});
}

// Each axis by itself, from the last one on: an image of one axis is a row of one of two.
TEST(LoweredImages, ResizedAlongTheirAxes) {
  for (const std::string mode : {"nearest", "linear"}) {
    const auto resized = [&](const Extents& image, const Integers& to) {
      FileBuilder builder;
      Doubles values;
      for (int64_t i = 0; i < elements(image); ++i)
        values.push_back(std::sin(3.7 * static_cast<double>(i)));
      const int x = builder.initializer("x", array_of(ElementType::kFloat, image, values));
      builder.output(
          builder.node("Resize", {x, -1, -1, builder.integers("sizes", to)}, {{"mode", mode}}));
      Classes classes;
      classes.parameter.resize(builder.file().values.size(), false);
      classes.parameter[static_cast<size_t>(x)] = true;
      const Network network = bind(builder.file(), classes, {});
      return testing::LoweredNetwork(network, 0, graph::Purpose::kInference).output();
    };
    const std::vector<float> row = resized({2, 3, 1, 5}, {2, 3, 1, 9});
    EXPECT_EQ(resized({2, 3, 5}, {2, 3, 9}), row);
    EXPECT_EQ(resized({2, 3, 5, 1, 1}, {2, 3, 9, 1, 1}), row);
    EXPECT_EQ(resized({2, 3, 1, 1, 5}, {2, 3, 1, 1, 9}), row);
    EXPECT_EQ(resized({2, 1, 3, 5, 1}, {2, 1, 3, 9, 1}), row);
  }
}

}  // namespace
}  // namespace lockstep::onnx
