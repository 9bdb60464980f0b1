// Catches: random draws written as nodes that drop another share than they say, also outside of
// training, or that choose elements and are not refused.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/error.h"
#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

enum class Draw { kLess, kLessCastLike, kBernoulli };

// As exporters write stochastic depth, or dropout in place: four of five stay, and grow by a
// quarter.
AddNodes dropped(Draw way) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const int share = builder.initializer("share", array_of(ElementType::kFloat, {}, {0.8}));
    int kept = 0;
    if (way == Draw::kBernoulli) {
      const int shares = builder.initializer(
          "shares", array_of(ElementType::kFloat, {1000}, std::vector<double>(1000, 0.8)));
      kept = builder.node("Bernoulli", {shares});
    } else {
      kept = builder.node("Less", {builder.node("RandomUniformLike", {inputs[0]}), share});
      kept = way == Draw::kLess ? builder.node("Cast", {kept}, {{"to", int64_t{1}}})
                                : builder.node("CastLike", {kept, inputs[0]});
    }
    return builder.node("Mul", {inputs[0], builder.node("Div", {kept, share})});
  };
}

TEST(LoweredDraw, ThatChoosesElementsIsRefused) {
  const AddNodes chosen = [](FileBuilder& builder, const Inputs& inputs) {
    const int share = builder.initializer("share", array_of(ElementType::kFloat, {}, {0.2}));
    const int zero = builder.initializer("zero", array_of(ElementType::kFloat, {}, {0.0}));
    const int lost = builder.node("Less", {builder.node("RandomUniformLike", {inputs[0]}), share});
    return builder.node("Where", {lost, zero, inputs[0]});
  };
  const LoweredCase of{{{{1000}}}, chosen, chosen};
  const Network network = Judge(of, 1).network();
  EXPECT_THROW(testing::LoweredNetwork(network, 0, graph::Purpose::kInference), ConfigError);
}

TEST(LoweredDraw, DropsItsShareInTrainingAlone) {
  for (const Draw way : {Draw::kLess, Draw::kLessCastLike, Draw::kBernoulli}) {
    const Drawn ones{.extents = {1000}, .low = 1, .high = 1};
    const LoweredCase of{{ones}, dropped(way), dropped(way)};
    const Network network = Judge(of, 1).network();
    for (const float y : testing::LoweredNetwork(network, 0, graph::Purpose::kInference).output())
      EXPECT_FLOAT_EQ(y, 1);
    const std::vector<double> gradient =
        testing::LoweredNetwork(network, 0, graph::Purpose::kTraining, std::vector<float>(1000, 0))
            .gradient(0);
    int64_t zeros = 0;
    for (const double g : gradient) {
      zeros += g == 0 ? 1 : 0;
      if (g != 0) {
        EXPECT_NEAR(g, 2 * 1.25 * 1.25 / 1000, 1e-8);  // of the mean of (1.25 x)^2
      }
    }
    EXPECT_NEAR(static_cast<double>(zeros), 200, 60);  // five standard deviations
  }
}

}  // namespace
}  // namespace lockstep::onnx
