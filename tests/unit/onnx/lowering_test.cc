// Catches: ops of files that compute something else than ONNX says, or whose gradient is not the
// slope.

#include "models/onnx/nodes/strided.h"
#include "models/onnx/samples/node_labels.h"
#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

struct Case {
  std::string op;
  std::vector<Drawn> inputs;
  NodeAttributes attributes = {};
  int64_t opset = 23;
  bool slopes = true;  // whether there are gradients
  // What the evaluator computes instead of an op that it does not have: the same.
  std::string judge = {};
  NodeAttributes judge_attributes = {};
};

Drawn whole(const std::vector<int64_t>& values, Extents extents) {
  return {std::move(extents), 0, 0, ElementType::kInt64, {values.begin(), values.end()}};
}
Drawn list(const std::vector<int64_t>& values) {
  return whole(values, {static_cast<int64_t>(values.size())});
}
Drawn truth(Extents extents) { return {std::move(extents), 0, 2, ElementType::kBool}; }

std::vector<Case> cases() {
  const Drawn x = {{2, 3, 4}}, row = {{4}}, column = {{3, 1}}, positive = {{2, 3, 4}, 0.3, 2};
  const Drawn image = {{2, 3, 4, 5}}, channel = {{1, 3, 1, 1}};
  std::vector<Case> all;
  for (const char* op : {"Neg",         "Abs",
                         "Exp",         "Sigmoid",
                         "Tanh",        "Erf",
                         "Sin",         "Cos",
                         "Atan",        "Sinh",
                         "Cosh",        "Asinh",
                         "Relu",        "Softplus",
                         "Softsign",    "Mish",
                         "Gelu",        "HardSwish",
                         "HardSigmoid", "LeakyRelu",
                         "Elu",         "Celu",
                         "Selu",        "Swish",
                         "Shrink",      "ThresholdedRelu",
                         "Softmax",     "LogSoftmax",
                         "Clip"})
    all.push_back({op, {x}});
  for (const char* op : {"Sqrt", "Reciprocal", "Log"}) all.push_back({op, {positive}});
  for (const char* op : {"Tan", "Asin", "Acos", "Atanh"})
    all.push_back({op, {{{2, 5}, -0.8, 0.8}}});
  all.push_back({"Acosh", {{{7}, 1.2, 3}}});
  for (const char* op : {"Sign", "Floor", "Ceil", "Round", "IsNaN", "IsInf"})
    all.push_back({op, {x}, {}, 23, false});
  for (const char* op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    all.push_back({op, {x, row}, {}, 23, false});
  all.push_back({"Not", {truth({2, 3})}, {}, 23, false});
  for (const char* op : {"Add", "Sub", "Mul", "Max", "Min"}) {
    all.push_back({op, {x, x}});
    all.push_back({op, {x, row}});
    all.push_back({op, {column, {{2, 1, 4}}}});
    all.push_back({op, {{{}}, x}});
  }
  all.push_back({"Div", {x, {{3, 1}, 0.5, 2}}});
  all.push_back({"Pow", {{{2, 3}, 0.5, 2}, {{3}}}});
  all.push_back({"Pow", {x, {{}, 0, 0, ElementType::kDouble, {3}}}, {}, 23});
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) all.push_back({op, {x, row, column}});
  all.push_back({"Where", {truth({2, 1, 4}), x, row}});
  all.push_back({"PRelu", {x, {{3, 1}, 0.1, 0.5}}});
  all.push_back({"Mod", {x, {{4}, 0.5, 2}}, {{"fmod", int64_t{1}}}});
  all.push_back({"Clip", {x, {{}, -1, -1}, {{}, 1, 1}}});
  all.push_back({"Clip", {x}, {{"min", -0.5f}, {"max", 1.0f}}, 9});
  all.push_back({"Gelu", {x}, {{"approximate", std::string("tanh")}}});
  all.push_back({"Swish", {x}, {{"alpha", 1.5f}}});
  all.push_back({"Elu", {x}, {{"alpha", 0.7f}}});
  all.push_back({"Celu", {x}, {{"alpha", 1.7f}}});
  all.push_back({"Cast", {x}, {{"to", int64_t{7}}}, 23, false});
  all.push_back({"Cast", {x}, {{"to", int64_t{9}}}, 23, false});

  for (const char* op : {"ReduceMean",
                         "ReduceSum",
                         "ReduceMax",
                         "ReduceMin",
                         "ReduceL1",
                         "ReduceL2",
                         "ReduceSumSquare",
                         "ReduceLogSumExp",
                         "ReduceProd"}) {
    all.push_back({op, {x, list({1})}});
    all.push_back({op, {x, list({0, -1})}, {{"keepdims", int64_t{0}}}});
    all.push_back({op, {x}, {{"axes", Integers{2}}}, 11});
    all.push_back({op, {x}});
  }
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int64_t last : {0, 1}) {
      all.push_back({op, {x}, {{"axis", int64_t{1}}, {"select_last_index", last}}, 23, false});
      all.push_back({op,
                     {x},
                     {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}, {"select_last_index", last}},
                     23,
                     false});
    }
  }
  for (const int64_t reverse : {0, 1}) {
    for (const int64_t exclusive : {0, 1}) {
      const NodeAttributes ways = {{"reverse", reverse}, {"exclusive", exclusive}};
      all.push_back({"CumSum", {x, whole({1}, {})}, ways});
      all.push_back({"CumSum", {x, whole({-1}, {})}, ways});
    }
  }
  // Longer than what one matrix of ones is made for.
  for (const int64_t reverse : {0, 1})
    all.push_back({"CumSum",
                   {{{2, 600}, -0.1, 0.1}, whole({1}, {})},
                   {{"reverse", reverse}, {"exclusive", 1 - reverse}}});
  all.push_back({"ReduceLogSum", {positive, list({1})}});
  all.push_back({"Softmax", {x}, {{"axis", int64_t{1}}}});
  all.push_back({"Softmax", {x}, {{"axis", int64_t{1}}}, 11});
  all.push_back({"LogSoftmax", {x}, {{"axis", int64_t{0}}}});
  for (const auto& [op, judge] :
       {std::pair("GlobalMaxPool", "ReduceMax"), std::pair("GlobalAveragePool", "ReduceMean")}) {
    all.push_back({op, {image}, {}, 11, true, judge, {{"axes", Integers{2, 3}}}});
    all.push_back({op, {x}, {}, 11, true, judge, {{"axes", Integers{2}}}});
  }
  for (const auto& [a, b] : std::vector<std::pair<Extents, Extents>>{{{2, 3, 4}, {2, 4, 5}},
                                                                     {{2, 1, 3, 4}, {3, 4, 2}},
                                                                     {{4}, {2, 4, 3}},
                                                                     {{2, 3, 4}, {4}},
                                                                     {{3, 4}, {4, 2}},
                                                                     {{2, 3, 4}, {4, 2}},
                                                                     {{4}, {4}}})
    all.push_back({"MatMul", {{a}, {b}}});
  all.push_back({"Gemm", {{{3, 4}}, {{4, 2}}, {{2}}}});
  all.push_back(
      {"Gemm",
       {{{4, 3}}, {{2, 4}}, {{3, 1}}},
       {{"alpha", 0.5f}, {"beta", 2.0f}, {"transA", int64_t{1}}, {"transB", int64_t{1}}}});
  for (const auto& [equation, inputs] : std::vector<std::pair<std::string, std::vector<Drawn>>>{
           {"bij,bjk->bik", {{{2, 3, 4}}, {{2, 4, 5}}}},
           {"...ij,...jk->...ik", {{{2, 3, 4}}, {{2, 4, 5}}}},
           {"bhqd,bkhd->bhqk", {{{2, 2, 3, 4}}, {{2, 5, 2, 4}}}},
           {"ij->ji", {{{3, 4}}}},
           {"ijk->k", {{{2, 3, 4}}}},
           {"ij,jk,kl->il", {{{2, 3}}, {{3, 4}}, {{4, 2}}}},
           {"ai,aj->ij", {{{5, 2}}, {{5, 3}}}},
           {"i,j->ij", {{{3}}, {{4}}}},
           {"ijk,jl->il", {{{2, 3, 4}}, {{3, 2}}}}})
    all.push_back({"Einsum", inputs, {{"equation", equation}}});

  all.push_back({"Gather", {x, list({2, 0, -1, 2})}, {{"axis", int64_t{1}}}});
  all.push_back({"Gather", {x, whole({1}, {})}, {{"axis", int64_t{2}}}});
  all.push_back({"Gather", {{{5, 3}}, whole({4, 0, -2, 4}, {2, 2})}});
  all.push_back({"Gather", {{{5, 3}}, whole({3}, {})}});
  all.push_back({"CumSum", {x, whole({1}, {})}});
  all.push_back({"CumSum", {x, whole({-1}, {})}, {{"exclusive", int64_t{1}}}});
  all.push_back(
      {"CumSum", {x, whole({2}, {})}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}});
  all.push_back(
      {"GatherElements", {{{3, 4}}, whole({0, 2, -1, 1, 0, 2}, {2, 3})}, {{"axis", int64_t{0}}}});
  all.push_back({"GatherND", {x, whole({0, 1, 1, -1, 0, 1}, {3, 2})}});
  all.push_back({"GatherND", {x, whole({1, 2}, {2, 1})}, {{"batch_dims", int64_t{1}}}});
  all.push_back({"ScatterND", {x, whole({0, 1, 1, -1, 0, 0}, {3, 2}), {{3, 4}}}});
  all.push_back({"ScatterND", {{{5}}, whole({4, 0, -2}, {3, 1}), {{3}}}});
  all.push_back({"Tile", {x, list({1, 2, 3})}});
  all.push_back({"DepthToSpace", {{{2, 8, 2, 3}}}, {{"blocksize", int64_t{2}}}});
  all.push_back({"DepthToSpace",
                 {{{2, 8, 2, 3}}},
                 {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}});
  all.push_back({"SpaceToDepth", {{{2, 3, 4, 6}}}, {{"blocksize", int64_t{2}}}});
  all.push_back({"Trilu", {x}, {{"upper", int64_t{0}}}});
  all.push_back({"Trilu", {x, whole({1}, {})}});
  all.push_back({"Transpose", {x}, {{"perm", Integers{0, 2, 1}}}});
  all.push_back({"Transpose", {image}, {{"perm", Integers{0, 1, 3, 2}}}});
  all.push_back({"Transpose", {image}, {{"perm", Integers{0, 3, 1, 2}}}});
  all.push_back({"Reshape", {image, list({2, 3, 20})}});
  all.push_back({"Mul", {image, channel}});
  return all;
}

LoweredCase lowered_case(const Case& of) {
  LoweredCase made{.inputs = of.inputs, .nodes = {}, .judge = {}, .opset = of.opset};
  made.nodes = [of](FileBuilder& builder, const std::vector<int>& inputs) {
    return builder.node(of.op, inputs, of.attributes);
  };
  made.judge = [of](FileBuilder& builder, const std::vector<int>& inputs) {
    return of.judge.empty() ? builder.node(of.op, inputs, of.attributes)
                            : builder.node(of.judge, inputs, of.judge_attributes);
  };
  return made;
}

class LoweredNode : public ::testing::TestWithParam<Case> {};

TEST_P(LoweredNode, ComputesWhatOnnxSays) {
  for (uint64_t seed = 1; seed <= 5; ++seed) expect_outputs(lowered_case(GetParam()), seed);
}

TEST_P(LoweredNode, HasTheSlopeAsItsGradient) {
  if (GetParam().slopes) expect_slopes(lowered_case(GetParam()));
}

// What labels (samples/labels.h) say of the output, where the rows of one input are samples.
std::vector<Label> labels_of_output(const Network& network, size_t input) {
  std::vector<Labels> labels;
  for (const Value& value : network.values) labels.push_back(uniform(value.extents, kNoSample));
  labels[input] = by_rows(network.values[input].extents);
  for (size_t number = 0; number < network.nodes.size(); ++number) {
    const Node& node = network.nodes[number];
    const std::vector<Labels> made =
        labels_of_outputs(NodeLabels(network, static_cast<int>(number), labels));
    for (size_t place = 0; place < std::min(made.size(), node.outputs.size()); ++place)
      if (node.outputs[place] >= 0) labels[static_cast<size_t>(node.outputs[place])] = made[place];
  }
  const Labels& found = labels[static_cast<size_t>(network.outputs[0])];
  EXPECT_EQ(found.extents, network.values[static_cast<size_t>(network.outputs[0])].extents);
  std::vector<Label> all;
  for_each_offset(
      found.extents,
      broadcast_strides(found.stored, found.extents),
      0,
      0,
      elements(found.extents),
      [&](int64_t offset) { all.push_back(found.labels[static_cast<size_t>(offset)]); });
  return all;
}

// Elements that another number in a row changes are of that sample, or mixed.
TEST_P(LoweredNode, KnowsTheSampleOfEachElement) {
  const LoweredCase of = lowered_case(GetParam());
  Judge judge(of, 7);
  const Network network = judge.network();
  const std::vector<double> before = judge.outputs();
  for (size_t k = 0; k < of.inputs.size(); ++k) {
    const Extents& extents = of.inputs[k].extents;
    if (!of.inputs[k].learns() || extents.empty()) continue;
    const std::vector<Label> labels = labels_of_output(network, k);
    ASSERT_EQ(labels.size(), before.size());
    const auto row = static_cast<size_t>(elements(extents) / extents[0]);
    for (size_t i = 0; i < judge.values(k).size(); ++i) {
      const double value = judge.values(k)[i];
      judge.values(k)[i] = value + 1e-3;
      const std::vector<double> after = judge.outputs();
      judge.values(k)[i] = value;
      for (size_t at = 0; at < after.size(); ++at) {
        if (std::abs(after[at] - before[at]) > 1e-12) {
          EXPECT_TRUE(is_mixed(labels[at]) || labels[at] == static_cast<Label>(i / row))
              << "input " << k << ", element " << i << " of the output's " << at << ": "
              << labels[at];
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoweredNode, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.op + "_" + std::to_string(info.index);
});

}  // namespace
}  // namespace lockstep::onnx
