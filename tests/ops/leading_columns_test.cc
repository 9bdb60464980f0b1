// Catches: columns of another row, or of none.
#include "runtime/graph/ops/leading_columns.h"

#include <gtest/gtest.h>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const OpCall& call) {
  const auto op = LeadingColumns::of(call);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t t = 0; t < op.kept; ++t) op.y[row * op.kept + t] = op.x[row * op.columns + t];
  }
}

constexpr Implementation kReference[] = {{OpKind::kLeadingColumns, "loop", reference}};

TEST(LeadingColumnsTest, MatchesTheReferenceOnAllDevices) {
  for (const Shape& shape : {Shape({1, 1}), Shape({3, 7}), Shape({2, 3, 300})}) {
    for (const int64_t columns : {int64_t{1}, (shape.columns() + 1) / 2, shape.columns()}) {
      check_on_all_devices(
          {.name = "leading_columns " + std::to_string(columns) + " of " + to_string(shape),
           .build =
               [=](GraphBuilder& builder) {
                 ops::leading_columns(
                     builder, "cut", builder.input("x", shape, DType::kI32), columns);
               },
           .reference = kReference,
           .cpu = cpu::kCpuLeadingColumns,
           .cuda = cuda::kCudaLeadingColumns,
           .tolerance =
               [](const OpCall&, size_t, int64_t) {
                 return Tolerance{0, 0};
               },
           .gradients = 0,
           .value = [](const std::string&, int64_t i) { return static_cast<double>(i % 1000); }});
    }
  }
}

}  // namespace
}  // namespace lockstep::test
