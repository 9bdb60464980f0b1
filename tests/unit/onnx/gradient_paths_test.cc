// Catches: parameters behind functions that do not learn; those that no gradient reaches, and learn
// all the same or end the program; a gradient that passes PyTorch's detach().

#include <gtest/gtest.h>

#include "tests/reference/lowered_network.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

ValueKind kind_of(const Network& network, int number) {
  return network.values[static_cast<size_t>(number)].kind;
}

// By any differentiable path, but not by steps, conditions or whole numbers.
TEST(OnnxGradientPaths, ParametersBehindFunctionsLearn) {
  FileBuilder b;
  const int x = b.input("x", {{-1, "batch"}, {3}});
  const int reached = b.floats("reached", {3}), rounded = b.floats("rounded", {3}),
            compared = b.floats("compared", {3}), unused = b.floats("unused", {3}),
            aside = b.floats("aside", {3});
  Classes classes;
  int y = b.node("Mul", {x, b.node("Softplus", {b.node("Clip", {reached})})});
  y = b.node("Add", {y, b.node("Round", {rounded})});
  y = b.node("Where", {b.node("Less", {x, compared}), y, x});
  b.output(y);
  b.output(b.node("Mul", {x, aside}));
  classes.parameter.resize(b.file().values.size(), false);
  for (const int number : {reached, rounded, compared, unused, aside})
    classes.parameter[static_cast<size_t>(number)] = true;
  BindOptions options;
  options.outputs = {0};
  const Network network = bind(b.file(), classes, options);
  EXPECT_EQ(kind_of(network, reached), ValueKind::kParameter);
  for (const int number : {rounded, compared, unused, aside})
    EXPECT_EQ(kind_of(network, number), ValueKind::kConstant) << number;
}

// w + detach(f(w)): the gradient is that of w alone.
TEST(OnnxGradientPaths, StraightThrough) {
  FileBuilder b;
  const int w = b.floats("w", {3});
  const int inner = b.node("Mul", {w, w});
  const int detached = b.node("Identity", {inner});
  b.file().nodes.back().detached = true;
  b.output(b.node("Add", {w, detached}));
  Classes classes;
  classes.parameter.resize(b.file().values.size(), false);
  classes.parameter[static_cast<size_t>(w)] = true;
  const Network network = bind(b.file(), classes, {});
  // The mean square of 0.5 + 0.25, 1.5 + 2.25 and 2.5 + 6.25.
  const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kTraining, {0, 0, 0});
  const std::vector<double> gradient = lowered.gradient(w);
  ASSERT_EQ(gradient.size(), 3u);
  const double sums[] = {0.75, 3.75, 8.75};
  for (size_t i = 0; i < 3; ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(gradient[i]), static_cast<float>(2 * sums[i] / 3));
}

}  // namespace
}  // namespace lockstep::onnx
