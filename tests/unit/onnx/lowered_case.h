#pragma once
// A network of an ONNX file with random inputs, lowered and run, and held against the evaluator of
// models/onnx/nodes in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tests/reference/lowered_network.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {

// An input, drawn evenly from [low, high]. Numbers are parameters; truth, whole numbers and what
// has values are constants.
struct Drawn {
  Extents extents;
  double low = -2, high = 2;
  ElementType type = ElementType::kDouble;
  std::vector<double> values = {};  // instead

  bool learns() const { return type == ElementType::kDouble && values.empty(); }
};

// Adds nodes to a file, of such inputs; returns the output.
using AddNodes = std::function<int(FileBuilder& builder, const std::vector<int>& inputs)>;

struct LoweredCase {
  std::vector<Drawn> inputs;
  AddNodes nodes = {};
  AddNodes judge = {};  // the same, of ops that have an evaluator
  int64_t opset = 23;
};

class Judge {
 public:
  Judge(const LoweredCase& of, uint64_t seed) : case_(of) {
    std::mt19937_64 random(seed);
    for (const Drawn& drawn : of.inputs) {
      std::vector<double> values = drawn.values;
      while (static_cast<int64_t>(values.size()) < elements(drawn.extents)) {
        const double share = static_cast<double>(random() >> 11) * 0x1p-53;
        const double value = drawn.low + (drawn.high - drawn.low) * share;
        values.push_back(drawn.type == ElementType::kDouble ? static_cast<float>(value)
                                                            : std::floor(value));
      }
      values_.push_back(std::move(values));
    }
  }

  // The network, whose numbers learn.
  Network network() const { return network(case_.nodes, true); }

  std::vector<double> outputs() const {
    const Network known = network(case_.judge, false);
    const Value& output = known.values[static_cast<size_t>(known.outputs[0])];
    LOCKSTEP_CHECK(output.kind == ValueKind::kConstant, "an op without an evaluator ");
    return output.array.as_double();
  }

  double loss(const std::vector<float>& target) const {
    const std::vector<double> y = outputs();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += (y[i] - target[i]) * (y[i] - target[i]);
    return sum / static_cast<double>(y.size());
  }

  std::vector<double>& values(size_t input) { return values_[input]; }

 private:
  // Numbers that do not learn are doubles, and everything is a constant.
  Network network(const AddNodes& add, bool learns) const {
    FileBuilder builder;
    builder.opset(case_.opset);
    std::vector<int> inputs;
    Classes classes;
    for (size_t k = 0; k < values_.size(); ++k) {
      const Drawn& drawn = case_.inputs[k];
      const ElementType type =
          learns && drawn.type == ElementType::kDouble ? ElementType::kFloat : drawn.type;
      inputs.push_back(
          builder.initializer("x" + std::to_string(k), array_of(type, drawn.extents, values_[k])));
      classes.parameter.push_back(learns && drawn.learns());
    }
    builder.output(add(builder, inputs));
    classes.parameter.resize(builder.file().values.size(), false);
    BindOptions options;
    options.all_constant = !learns;
    return bind(builder.file(), classes, options);
  }

  const LoweredCase& case_;
  std::vector<std::vector<double>> values_;  // by input
};

// Sums of at most some sixty products of numbers up to 2, in single precision.
inline void expect_outputs(const LoweredCase& of, uint64_t seed) {
  const Judge judge(of, seed);
  const Network network = judge.network();
  const std::vector<float> y =
      testing::LoweredNetwork(network, 0, graph::Purpose::kInference).output();
  const std::vector<double> wanted = judge.outputs();
  ASSERT_EQ(y.size(), wanted.size());
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], wanted[i], 4e-6 * (1 + std::abs(wanted[i]))) << "element " << i;
}

// Differences of the evaluator, in double precision, are within 1e-7 of the slope.
inline void expect_slopes(const LoweredCase& of) {
  Judge judge(of, 7);
  const Network network = judge.network();
  std::vector<float> target;
  for (const double y : judge.outputs()) target.push_back(static_cast<float>(0.5 * y - 0.25));
  const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kTraining, target);
  for (size_t k = 0; k < of.inputs.size(); ++k) {
    if (!of.inputs[k].learns()) continue;
    const std::vector<double> gradient = lowered.gradient(static_cast<int>(k));
    ASSERT_EQ(gradient.size(), judge.values(k).size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double value = judge.values(k)[i];
      judge.values(k)[i] = value + kStep;
      const double above = judge.loss(target);
      judge.values(k)[i] = value - kStep;
      const double slope = (above - judge.loss(target)) / (2 * kStep);
      judge.values(k)[i] = value;
      EXPECT_NEAR(gradient[i], slope, 1e-5 * (1 + std::abs(slope)))
          << "input " << k << ", element " << i;
    }
  }
}

// ---- What cases are made of ----

using Integers = std::vector<int64_t>;
using Inputs = std::vector<int>;
using NodeAttributes = std::map<std::string, Attribute>;

// Of the type that the inputs have.
inline int number(FileBuilder& builder, double value) {
  static int count = 0;
  return builder.initializer("number" + std::to_string(count++),
                             array_of(builder.file().initializers.front().array.type, {}, {value}));
}

inline int integers(FileBuilder& builder, const Integers& values) {
  static int count = 0;
  return builder.integers("integers" + std::to_string(count++), values);
}

inline int reshape(FileBuilder& builder, int x, const Integers& extents) {
  return builder.node("Reshape", {x, integers(builder, extents)});
}

inline int swap_axes(FileBuilder& builder, int x) {
  return builder.node("Transpose", {x}, {{"perm", Integers{0, 2, 1, 3}}});
}

inline size_t ops_of(const LoweredCase& of, graph::OpKind kind) {
  const Judge judge(of, 1);
  const Network network = judge.network();
  return testing::LoweredNetwork(network, 0, graph::Purpose::kInference).ops(kind);
}

inline LoweredCase of_nodes(std::vector<Drawn> inputs, const AddNodes& nodes) {
  return {std::move(inputs), nodes, nodes};
}

}  // namespace lockstep::onnx
