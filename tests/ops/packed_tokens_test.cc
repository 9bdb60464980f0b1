// Catches: parts or samples that are mixed up, positions that do not begin where they should.
#include "runtime/graph/ops/packed_tokens.h"

#include <gtest/gtest.h>

#include <tuple>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::PackedTokens op{call};
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t t = 0; t < op.time; ++t) {
      for (int64_t part = 0; part < op.rows; ++part)
        op.parts[part][b * op.time + t] =
            op.packed[(b * op.rows + part) * op.time + t] + (part == 2 ? op.first_position : 0);
    }
  }
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kPackedTokens, "loop", reference}};

TEST(PackedTokensTest, MatchesTheReferenceOnAllDevices) {
  for (const auto& [batch, rows, first] : {std::tuple(1, 3, 0), {3, 3, 0}, {1, 4, 0}, {3, 4, 5}}) {
    for (const int64_t time : {1, 7, 300}) {
      check_on_all_devices(
          {.name = "packed_tokens T " + std::to_string(time),
           .build =
               [batch = batch, rows = rows, first = first, time](graph::GraphBuilder& builder) {
                 ops::packed_tokens(
                     builder, builder.input("packed", {batch, rows, time}, DType::kI32), first);
               },
           .reference = kReference,
           .cpu = cpu::kCpuPackedTokens,
           .cuda = cuda::kCudaPackedTokens,
           .tolerance =
               [](const graph::OpCall&, graph::OutputName, int64_t) {
                 return Tolerance{0, 0};
               },
           .gradients = 0,
           .value = [](const std::string&, int64_t i) { return static_cast<double>(i % 1000); }});
    }
  }
}

}  // namespace
}  // namespace lockstep::test
