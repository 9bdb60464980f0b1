// Catches: columns of another part or sample, bits that change on the way.
#include "runtime/graph/ops/target_part.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Floats of the reference are stored as doubles.
void reference(const graph::OpCall& call) {
  const graph::TargetPart op{call};
  const bool floats = call.output_dtype(graph::TargetPartOut::kPart) == DType::kF32;
  for (int64_t i = 0; i < op.rows * op.columns; ++i) {
    const int32_t bits = op.record[i / op.columns * op.width + op.first + i % op.columns];
    if (floats)
      call.output<double>(graph::TargetPartOut::kPart)[i] =
          static_cast<double>(std::bit_cast<float>(bits));
    else
      op.part[i] = bits;
  }
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kTargetPart, "loop", reference}};

OpTest part(int64_t samples, int64_t width, int64_t first, const Shape& shape, DType type) {
  return {.name = "target_part of " + to_string(shape) + " at " + std::to_string(first),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId record = builder.input("record", {samples, width}, DType::kI32);
                ops::target_part(builder, "part", record, first, shape, type);
              },
          .reference = kReference,
          .cpu = cpu::kCpuTargetPart,
          .cuda = cuda::kCudaTargetPart,
          .tolerance =
              [](const graph::OpCall&, graph::OutputName, int64_t) {
                return Tolerance{0, 0};
              },
          .gradients = 0,
          .value =
              [=](const std::string&, int64_t i) {
                const auto number = static_cast<float>(i % 37) - 18.25f;
                return type == DType::kI32 ? static_cast<double>(i)
                                           : static_cast<double>(std::bit_cast<int32_t>(number));
              }};
}

TEST(TargetPartTest, MatchesTheReferenceOnAllDevices) {
  for (const DType type : {DType::kI32, DType::kF32}) {
    check_on_all_devices(part(1, 1, 0, {1}, type));
    check_on_all_devices(part(5, 3, 2, {5}, type));
    check_on_all_devices(part(3, 40, 7, {3, 17}, type));
    check_on_all_devices(part(2, 300, 0, {2, 3, 100}, type));
  }
}

}  // namespace
}  // namespace lockstep::test
