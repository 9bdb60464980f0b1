// Catches: recurrent layers that are run step by step whose gates, peepholes or biases are those of
// another gate, whose reset stands behind the product, whose times go the other way, or whose
// gradient is not the slope.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kTimes = 3, kBatch = 2, kFeatures = 3, kHidden = 2;

// By the definition, of ops that the judge has: x, w, r, bias, and of an LSTM its peepholes.
class Judged {
 public:
  Judged(FileBuilder& builder, const Inputs& inputs, int64_t gates, int64_t direction)
      : builder_(builder), inputs_(inputs), gates_(gates), direction_(direction) {}

  int gru() {
    int h = zeros();
    return over_time([&](int64_t time) {
      const int z = node("Sigmoid", {sum(time, 0, h)}), r = node("Sigmoid", {sum(time, 1, h)});
      const int n = node("Tanh", {sum(time, 2, node("Mul", {r, h}))});
      h = node("Add",
               {node("Mul", {node("Sub", {number(builder_, 1), z}), n}), node("Mul", {z, h})});
      return h;
    });
  }

  int lstm(bool coupled) {
    int h = zeros(), c = h;
    return over_time([&](int64_t time) {
      const int i = node("Sigmoid", {seen(sum(time, 0, h), c, 0)});
      const int f = coupled ? node("Sub", {number(builder_, 1), i})
                            : node("Sigmoid", {seen(sum(time, 2, h), c, 2)});
      const int g = node("Tanh", {sum(time, 3, h)});
      c = node("Add", {node("Mul", {f, c}), node("Mul", {i, g})});
      const int o = node("Sigmoid", {seen(sum(time, 1, h), c, 1)});
      h = node("Mul", {o, node("Tanh", {c})});
      return h;
    });
  }

 private:
  int node(const std::string& op, const Inputs& inputs) { return builder_.node(op, inputs); }
  int zeros() {
    return builder_.initializer("zeros" + std::to_string(direction_),
                                array_of(builder_.file().initializers.front().array.type,
                                         {kBatch, kHidden},
                                         std::vector<double>(kBatch * kHidden, 0)));
  }
  // Along axis 1, of this direction.
  int rows(int x, int64_t first, int64_t count) {
    const int part = builder_.node("Slice",
                                   {x,
                                    integers(builder_, {direction_, first}),
                                    integers(builder_, {direction_ + 1, first + count}),
                                    integers(builder_, {0, 1})});
    return builder_.node("Squeeze", {part, integers(builder_, {0})});
  }
  int times(int x, size_t place, int64_t gate) {
    const int w = rows(inputs_[place], gate * kHidden, kHidden);
    return node("MatMul", {x, builder_.node("Transpose", {w}, {{"perm", Integers{1, 0}}})});
  }
  int sum(int64_t time, int64_t gate, int h) {
    const int x =
        builder_.node("Gather",
                      {inputs_[0],
                       builder_.initializer("time" + std::to_string(builder_.file().nodes.size()),
                                            array_of_int64({}, {time}))});
    const int biases = node("Add",
                            {rows(inputs_[3], gate * kHidden, kHidden),
                             rows(inputs_[3], (gates_ + gate) * kHidden, kHidden)});
    return node("Add", {node("Add", {times(x, 1, gate), times(h, 2, gate)}), biases});
  }
  int seen(int v, int c, int64_t peephole) {
    if (inputs_.size() < 5) return v;
    return node("Add", {v, node("Mul", {rows(inputs_[4], peephole * kHidden, kHidden), c})});
  }
  template <typename Step>
  int over_time(const Step& step) {
    Inputs states(kTimes);
    for (int64_t i = 0; i < kTimes; ++i) {
      const int64_t time = direction_ == 1 ? kTimes - 1 - i : i;
      states[static_cast<size_t>(time)] =
          builder_.node("Unsqueeze", {step(time), integers(builder_, {0, 1})});
    }
    return builder_.node("Concat", states, {{"axis", int64_t{0}}});
  }

  FileBuilder& builder_;
  const Inputs& inputs_;
  int64_t gates_, direction_;
};

void expect_all(const std::string& op,
                bool peepholes,
                const NodeAttributes& more,
                int64_t directions) {
  const int64_t gates = op == "GRU" ? 3 : 4;
  LoweredCase of;
  of.inputs = {{{kTimes, kBatch, kFeatures}},
               {{directions, gates * kHidden, kFeatures}},
               {{directions, gates * kHidden, kHidden}},
               {{directions, 2 * gates * kHidden}}};
  if (peepholes) of.inputs.push_back({{directions, 3 * kHidden}});
  of.nodes = [=](FileBuilder& builder, const Inputs& given) {
    Inputs inputs(given.begin(), given.begin() + 4);
    if (peepholes) inputs.insert(inputs.end(), {-1, -1, -1, given[4]});
    NodeAttributes attributes = more;
    attributes["hidden_size"] = kHidden;
    if (directions == 2) attributes["direction"] = std::string("bidirectional");
    return builder.node(op, inputs, attributes);
  };
  of.judge = [=](FileBuilder& builder, const Inputs& given) {
    Inputs parts;
    for (int64_t d = 0; d < directions; ++d) {
      Judged judged(builder, given, gates, d);
      parts.push_back(op == "GRU" ? judged.gru() : judged.lstm(more.count("input_forget") > 0));
    }
    return builder.node("Concat", parts, {{"axis", int64_t{1}}});
  };
  EXPECT_EQ(ops_of(of, graph::OpKind::kRecurrent), 0u);
  for (uint64_t seed = 1; seed <= 3; ++seed) expect_outputs(of, seed);
  expect_slopes(of);
}

TEST(LoweredRecurrences, ResetBeforeTheProduct) {
  for (const int64_t directions : {1, 2}) expect_all("GRU", false, {}, directions);
}

TEST(LoweredRecurrences, PeepholesAndCoupledGates) {
  expect_all("LSTM", true, {}, 2);
  expect_all("LSTM", false, {{"input_forget", int64_t{1}}}, 1);
  expect_all("LSTM", true, {{"input_forget", int64_t{1}}}, 1);
}

}  // namespace
}  // namespace lockstep::onnx
