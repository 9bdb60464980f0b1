// Catches: elements lost at the end of an array or where it is misaligned, a sum that is rounded
// twice.
#include "runtime/graph/ops/add.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::Add<double> op{call};
  for (int64_t i = 0; i < op.n; ++i) op.y[i] = op.a[i] + op.b[i];
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kAdd, "double", reference}};

TEST(AddTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t n : {1, 7, 15, 17, 2048, 5003}) {
    check_on_all_devices({.name = "add of " + std::to_string(n),
                          .build =
                              [=](graph::GraphBuilder& builder) {
                                const TensorId a = builder.activation_tensor("a", {n});
                                ops::add(builder, "y", a, builder.activation_tensor("b", {n}));
                              },
                          .reference = kReference,
                          .cpu = cpu::kCpuAdd,
                          .cuda = cuda::kCudaAdd,
                          .tolerance =
                              [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
                                const double y = std::abs(graph::Add<double>{expected}.y[i]);
                                return Tolerance{y / 2, y};
                              },
                          .gradients = 0});  // the gradient of y is that of both
  }
}

}  // namespace
}  // namespace lockstep::test
