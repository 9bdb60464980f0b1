// Catches: losses of classes that are another element's, count an ignored label, or take the weight
// of another class; means over what does not count; gradients that are not the slope.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

struct LossCase {
  std::string op, reduction;
  bool weighted = false, ignores = false;
  Extents extents = {3, 4};
};

constexpr int64_t kIgnored = 1;  // a class, so that the judge can look it up

// The same from ops that have an evaluator.
int judged(const LossCase& of, FileBuilder& builder, const Inputs& inputs) {
  const NodeAttributes axis = {{"axis", int64_t{1}}};
  const int scores = of.op == "SoftmaxCrossEntropyLoss"
                         ? builder.node("LogSoftmax", {inputs[0]}, axis)
                         : inputs[0];
  const int row = builder.node("Unsqueeze", {inputs[1], integers(builder, {1})});
  const int picked = builder.node("GatherElements", {scores, row}, axis);
  int loss = builder.node("Neg", {builder.node("Squeeze", {picked, integers(builder, {1})})});
  int counts = builder.node("Sub", {loss, loss});
  counts = builder.node("Add", {counts, number(builder, 1)});
  if (of.weighted) {
    const int weights = builder.node("Gather", {inputs[2], inputs[1]});
    loss = builder.node("Mul", {loss, weights});
    counts = builder.node("Mul", {counts, weights});
  }
  if (of.ignores) {
    const int ignored = builder.node("Equal", {inputs[1], integers(builder, {kIgnored})});
    loss = builder.node("Where", {ignored, number(builder, 0), loss});
    counts = builder.node("Where", {ignored, number(builder, 0), counts});
  }
  if (of.reduction == "none") return loss;
  const NodeAttributes all = {{"keepdims", int64_t{0}}};
  const int sum = builder.node("ReduceSum", {loss}, all);
  return of.reduction == "sum"
             ? sum
             : builder.node("Div", {sum, builder.node("ReduceSum", {counts}, all)});
}

LoweredCase lowered(const LossCase& of) {
  Extents labels = of.extents;
  labels.erase(labels.begin() + 1);
  LoweredCase made;
  made.inputs = {{of.extents},
                 {labels, 0, static_cast<double>(of.extents[1]) - 0.001, ElementType::kInt64}};
  std::vector<double> weights;
  for (int64_t c = 0; c < of.extents[1]; ++c)
    weights.push_back(0.5 + 0.75 * static_cast<double>(c));
  if (of.weighted) made.inputs.push_back({{of.extents[1]}, 0, 0, ElementType::kDouble, weights});
  made.nodes = [=](FileBuilder& builder, const Inputs& inputs) {
    NodeAttributes attributes = {{"reduction", of.reduction}};
    if (of.ignores) attributes["ignore_index"] = kIgnored;
    return builder.node(of.op, inputs, attributes);
  };
  made.judge = [=](FileBuilder& builder, const Inputs& inputs) {
    return judged(of, builder, inputs);
  };
  return made;
}

TEST(LoweredLosses, AreThoseOfTheLabels) {
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
    for (const char* reduction : {"none", "sum", "mean"})
      for (const bool weighted : {false, true})
        for (const bool ignores : {false, true})
          for (const Extents& extents : {Extents{3, 4}, {2, 3, 5}, {2, 3, 2, 2}}) {
            SCOPED_TRACE(op + std::string(" ") + reduction + (weighted ? " weighted" : "") +
                         (ignores ? " ignores" : ""));
            const LoweredCase of = lowered({op, reduction, weighted, ignores, extents});
            expect_outputs(of, 3);
            expect_slopes(of);
          }
}

// The second output of the cross-entropy.
TEST(LoweredLosses, GiveLogarithms) {
  const LoweredCase of = {
      {{{2, 3, 4}}, {{2, 4}, 0, 2.9, ElementType::kInt64}},
      [](FileBuilder& builder, const Inputs& inputs) {
        builder.node("SoftmaxCrossEntropyLoss", inputs, {{"reduction", std::string("none")}}, 2);
        return builder.file().nodes.back().outputs[1];
      },
      [](FileBuilder& builder, const Inputs& inputs) {
        return builder.node("LogSoftmax", {inputs[0]}, {{"axis", int64_t{1}}});
      }};
  expect_outputs(of, 5);
}

}  // namespace
}  // namespace lockstep::onnx
