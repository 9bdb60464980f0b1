// Catches: RMS norms that exporters write node by node and that stay single nodes, or are
// taken though they are something else or someone else reads a part of them, and other numbers than
// the nodes' own.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/reference/lowered_network.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kRows = 6, kColumns = 4;
constexpr float kEpsilon = 0.25f;

enum class Spelling { kPowAndReciprocal, kProductAndQuotient, kOneOverRoot };

struct Norm {
  Spelling spelling = Spelling::kPowAndReciprocal;
  int64_t axis = -1;
  float exponent = 2;
  bool gain_first = true;
  bool mean_is_read = false;
};

int scalar(FileBuilder& builder, const std::string& name, double value) {
  return builder.initializer(name, array_of(ElementType::kFloat, {}, {value}));
}

float x_at(int64_t row, int64_t column) {
  return 0.5f + static_cast<float>((4 * row + column) % 7);
}

// x (2, 3, 4) and a gain (4) that learn.
Network network_of(const Norm& norm) {
  FileBuilder builder;
  const int x = builder.floats("x", {2, 3, kColumns}), gain = builder.floats("gain", {kColumns});
  const int square = norm.spelling == Spelling::kProductAndQuotient
                         ? builder.node("Mul", {x, x})
                         : builder.node("Pow", {x, scalar(builder, "exponent", norm.exponent)});
  const int mean = builder.node("ReduceMean", {square, builder.integers("axes", {norm.axis})});
  const int sum = builder.node("Add", {mean, scalar(builder, "epsilon", kEpsilon)});
  const int root = builder.node("Sqrt", {sum});
  int normed = -1;
  if (norm.spelling == Spelling::kProductAndQuotient)
    normed = builder.node("Div", {x, root});
  else if (norm.spelling == Spelling::kOneOverRoot)
    normed = builder.node("Mul", {builder.node("Div", {scalar(builder, "one", 1), root}), x});
  else
    normed = builder.node("Mul", {x, builder.node("Reciprocal", {root})});
  int y =
      norm.gain_first ? builder.node("Mul", {gain, normed}) : builder.node("Mul", {normed, gain});
  if (norm.mean_is_read) y = builder.node("Add", {y, mean});
  builder.output(y);
  Classes classes;
  classes.parameter.resize(builder.file().values.size(), false);
  classes.parameter[static_cast<size_t>(x)] = classes.parameter[static_cast<size_t>(gain)] = true;
  return bind(builder.file(), classes, {});
}

std::vector<float> output_of(const Network& network, size_t norms) {
  const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kInference);
  EXPECT_EQ(lowered.ops(graph::OpKind::kRmsNorm), norms);
  return lowered.output();
}

TEST(RmsNormFusion, TakesEverySpelling) {
  for (const Norm& norm : {Norm{},
                           Norm{.gain_first = false},
                           Norm{.spelling = Spelling::kProductAndQuotient},
                           Norm{.spelling = Spelling::kOneOverRoot, .axis = 2}}) {
    const std::vector<float> y = output_of(network_of(norm), 1);
    ASSERT_EQ(y.size(), static_cast<size_t>(kRows * kColumns));
    for (int64_t row = 0; row < kRows; ++row) {
      double squares = 0;
      for (int64_t c = 0; c < kColumns; ++c) squares += std::pow(x_at(row, c), 2) / kColumns;
      for (int64_t c = 0; c < kColumns; ++c) {
        const double wanted =
            x_at(row, c) / std::sqrt(squares + kEpsilon) * (0.5 + static_cast<double>(c));
        EXPECT_NEAR(y[static_cast<size_t>(row * kColumns + c)], wanted, 1e-6 * (1 + wanted));
      }
    }
  }
}

TEST(RmsNormFusion, LeavesWhatIsNone) {
  output_of(network_of({.axis = 1}), 0);
  output_of(network_of({.exponent = 4}), 0);
  output_of(network_of({.mean_is_read = true}), 0);
}

}  // namespace
}  // namespace lockstep::onnx
