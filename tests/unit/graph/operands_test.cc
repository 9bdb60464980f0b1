#include "runtime/graph/operands.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// ---- What must not compile: operands by number, and names of the other side ----

template <typename Name>
concept FindsInput = requires(const Op& op, const OpCall& call, Name name) {
  op.inputs[name];
  call.input_shape(name);
  call.template input<float>(name);
};
template <typename Name>
concept FindsOutput = requires(const Op& op, const OpCall& call, Name name) {
  op.outputs[name];
  call.output_shape(name);
  call.template output<float>(name);
};
enum class Other : uint8_t { kX };
static_assert(FindsInput<LinearIn> && FindsOutput<LinearOut>);
static_assert(!FindsInput<LinearOut> && !FindsOutput<LinearIn>);
static_assert(!FindsInput<int> && !FindsOutput<int>);
static_assert(!FindsInput<size_t> && !FindsOutput<size_t>);
static_assert(!FindsInput<Other> && !FindsOutput<Other>);
static_assert(!std::is_convertible_v<int, InputName> && !std::is_constructible_v<InputName, int>);
static_assert(!std::is_constructible_v<OutputName, InputName>);
static_assert(!std::is_constructible_v<decltype(OpSchema::in_place)::value_type, int, int>);

// ---- What the names find ----

TEST(Operands, AreFoundByTheirNames) {
  Op op{OpKind::kLinear, "linear", {7, 8, 9}, {10, kNoTensor}, {}};
  EXPECT_EQ(op.inputs[LinearIn::kX], 7);
  EXPECT_EQ(op.inputs[LinearIn::kBias], 9);
  EXPECT_EQ(op.outputs[LinearOut::kPre], kNoTensor);
  op.outputs[LinearOut::kPre] = 11;
  EXPECT_EQ(op.outputs, (std::vector<TensorId>{10, 11}));
}

TEST(Operands, AreAbsentIfTheOpHasFewer) {
  const Op op{OpKind::kLinear, "linear", {7, 8}, {kNoTensor, 10}, {}};
  EXPECT_EQ(op.inputs[LinearIn::kBias], kNoTensor);
  EXPECT_EQ(op.inputs.first(), 7);
  EXPECT_EQ(op.outputs.first(), 10);
  EXPECT_EQ(OpInputs().first(), kNoTensor);
}

TEST(Operands, OfOneNameAreCounted) {
  const OpInputs inputs = {7, 8, 9};
  for (size_t k = 0; k < inputs.size(); ++k) {
    const InputName name(ConcatIn::kX, k);
    EXPECT_EQ(name, InputName::at(k));
    EXPECT_EQ(inputs[name], inputs.at(k));
  }
}

}  // namespace
}  // namespace lockstep::graph
