// Catches: elements lost at the end of an array or where it is misaligned, rounding that is not to
// the nearest.
#include "runtime/graph/ops/cast.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  for (int64_t i = 0; i < call.input_shape(graph::CastIn::kX).elements(); ++i)
    call.output<double>(graph::CastOut::kY)[i] = call.input<double>(graph::CastIn::kX)[i];
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kCast, "double", reference}};

TEST(CastTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t n : {1, 7, 2048, 5003}) {
    check_on_all_devices(
        {.name = "cast of " + std::to_string(n),
         .build =
             [=](graph::GraphBuilder& builder) {
               ops::cast(builder, "y", builder.input("x", {n}, DType::kF32));
             },
         .reference = kReference,
         .cpu = cpu::kCpuCast,
         .cuda = cuda::kCudaCast,
         .tolerance =
             [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
               return Tolerance{0, std::abs(expected.output<double>(graph::CastOut::kY)[i])};
             },
         .gradients = 0,
         .low = -3,
         .high = 3});
  }
}

}  // namespace
}  // namespace lockstep::test
