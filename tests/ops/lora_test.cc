// Catches: a part's product in another part's columns, rows of B or of h taken from the wrong part,
// the scale left out or applied twice, columns outside all parts that change, rows of logits that
// are taken to lie close together, d_B that is added
// where it is to be overwritten, or the other way round.
#include "runtime/graph/ops/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// The part of a column of y, or of a row of B; null: none.
const graph::LoraPart* part_of_column(const std::vector<graph::LoraPart>& parts, int64_t column) {
  for (const graph::LoraPart& part : parts)
    if (column >= part.column && column < part.column + part.rows) return &part;
  return nullptr;
}

void reference(const graph::OpCall& call) {
  const graph::LoraAdd<double> op{call};
  const auto [rows, stride, inner, rank] = op.sizes;
  const std::vector<graph::LoraPart> parts = graph::parts_of(*op.attributes, rank);
  for (int64_t i = 0; i < rows * stride; ++i) {
    op.out[i] = op.y[i];
    const graph::LoraPart* const part = part_of_column(parts, i % stride);
    if (part == nullptr) continue;
    const int64_t row = part->row + i % stride - part->column;
    for (int64_t k = 0; k < rank; ++k)
      op.out[i] +=
          op.attributes->scale * op.h[i / stride * inner + part->inner + k] * op.b[row * rank + k];
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::LoraAddBackward<double> op{call};
  const auto [rows, stride, inner, rank] = op.sizes;
  const double scale = op.attributes->scale;
  for (const graph::LoraPart& part : graph::parts_of(*op.attributes, rank)) {
    for (int64_t k = 0; k < rank; ++k) {
      for (int64_t m = 0; op.d_h != nullptr && m < rows; ++m) {
        double sum = 0;
        for (int64_t r = 0; r < part.rows; ++r)
          sum += op.d_out[m * stride + part.column + r] * op.b[(part.row + r) * rank + k];
        op.d_h[m * inner + part.inner + k] = scale * sum;
      }
      for (int64_t r = 0; op.d_b != nullptr && r < part.rows; ++r) {
        double sum = 0;
        for (int64_t m = 0; m < rows; ++m)
          sum += op.d_out[m * stride + part.column + r] * op.h[m * inner + part.inner + k];
        double& d_b = op.d_b[(part.row + r) * rank + k];
        d_b = (op.accumulate ? d_b : 0) + scale * sum;
      }
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kLoraAdd, "double", reference},
    {graph::OpKind::kLoraAddBackward, "double", reference_backward},
};

// All values are below 1, the scale is 2: a sum of n products is below 2 n, each of its roundings
// is half an ulp of that at most, and far less of most. What is stored is h times the scale, whose
// rounding every product has, and the result.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t) {
  const auto sizes = graph::LoraSizes::of(expected);
  const auto terms = static_cast<double>(expected.kind() == graph::OpKind::kLoraAdd ? sizes.rank
                                         : output == graph::LoraAddBackwardOut::kDH ? sizes.stride
                                                                                    : sizes.rows);
  return {(terms + 2) * (terms + 2), 4 * (terms + 2)};
}

struct Case {
  int64_t rows, outputs, rank;
  std::vector<graph::OutputRows> parts;
};

OpTest lora(const Case& at, bool accumulate = false) {
  int64_t b_rows = 0;
  for (const graph::OutputRows& part : at.parts) b_rows += part.rows;
  const auto inner = at.rank * static_cast<int64_t>(at.parts.size());
  return {.name = "lora_add " + std::to_string(at.rows) + " x " + std::to_string(at.outputs) +
                  " of rank " + std::to_string(at.rank) + " in " + std::to_string(at.parts.size()) +
                  " parts",
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId y = builder.activation_tensor("y", {at.rows, at.outputs});
                const TensorId h = builder.activation_tensor("h", {at.rows, inner});
                const TensorId b = builder.parameter("b", {b_rows, at.rank}, {}, false);
                if (accumulate)
                  builder[b].gradient = builder.tensor(
                      "d_b", builder.shape(b), DType::kF32, graph::Role::kParameterGradient);
                const TensorId out = builder.activation_tensor("out", {at.rows, at.outputs});
                builder.append({graph::OpKind::kLoraAdd,
                                "lora",
                                {y, h, b},
                                {out},
                                graph::LoraAttributes{.scale = 2, .parts = at.parts}});
              },
          .reference = kReference,
          .cpu = cpu::kCpuLora,
          .cuda = cuda::kCudaLora,
          .tolerance = tolerance};
}

const std::vector<Case> kCases = {
    {1, 1, 1, {{0, 1}}},
    {5, 7, 3, {{0, 7}}},
    {9, 40, 8, {{0, 16}, {24, 16}}},            // a part between them that learns nothing
    {33, 48, 8, {{0, 24}, {24, 8}, {32, 16}}},  // q, k and v
    {17, 30, 4, {{10, 20}}},
    {70, 96, 16, {{32, 64}}},
};

TEST(LoraTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(lora({3, 6, 2, {{0, 2}, {3, 3}}}));
}

TEST(LoraTest, MatchesTheReferenceOnAllDevices) {
  for (const Case& at : kCases) {
    check_on_all_devices(lora(at));
    check_on_all_devices(lora(at, /*accumulate=*/true));
    OpTest frozen = lora(at);
    frozen.name += ", B frozen";
    frozen.build = [build = frozen.build](graph::GraphBuilder& builder) {
      build(builder);
      builder[builder.graph().parameters[0]].frozen = true;
    };
    check_on_all_devices(frozen);
    OpTest inference = lora(at);
    inference.gradients = 0;
    check_on_all_devices(inference);
  }
}

// Logits: y and out, and so d_out, have rows with room behind them.
TEST(LoraTest, LeavesThePaddingOfLogits) {
  for (const Case& at : {Case{9, 40, 8, {{0, 16}, {24, 16}}}, Case{17, 30, 4, {{10, 20}}}}) {
    OpTest test = lora(at);
    test.name += ", padded";
    test.build = [build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      const graph::Op& op = builder.graph().ops.back();
      for (const TensorId id :
           {op.inputs[graph::LoraAddIn::kY], op.outputs[graph::LoraAddOut::kOut]})
        builder[id].padded_columns = 64;
    };
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
