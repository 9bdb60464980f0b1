// Catches: pixels taken from another place than every stride-th, channels in another place, zeros
// left unwritten, channels lost at the border of vectors.
#include "runtime/graph/ops/padded_identity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls f(element of x, element of y) for all that are copied.
template <typename F>
void each_copied(const PaddedIdentityShape& s, F f) {
  for (int64_t place = 0; place < s.images * s.out_height * s.out_width; ++place) {
    const int64_t image = place / s.out_width / s.out_height,
                  row = place / s.out_width % s.out_height * s.stride,
                  column = place % s.out_width * s.stride;
    for (int64_t c = 0; c < s.channels; ++c)
      f(((image * s.height + row) * s.width + column) * s.channels + c,
        place * s.out_channels + s.before + c);
  }
}

void reference_forward(const OpCall& call) {
  const auto op = PaddedIdentityForward<double>::of(call);
  std::fill_n(op.y, call.output_shape(0).elements(), 0.0);
  each_copied(op.shape, [&](int64_t x, int64_t y) { op.y[y] = op.x[x]; });
}

void reference_backward(const OpCall& call) {
  const auto op = PaddedIdentityBackward<double>::of(call);
  std::fill_n(op.d_x, call.output_shape(0).elements(), 0.0);
  each_copied(op.shape, [&](int64_t x, int64_t y) { op.d_x[x] = op.d_y[y]; });
}

constexpr Implementation kReference[] = {
    {OpKind::kPaddedIdentity, "double", reference_forward},
    {OpKind::kPaddedIdentityBackward, "double", reference_backward},
};

OpTest padded_identity(const Shape& x, const PaddedIdentityAttributes& attributes) {
  return {.name = "padded_identity of " + to_string(x),
          .build =
              [=](GraphBuilder& builder) {
                ops::padded_identity(builder, "y", builder.activation_tensor("x", x), attributes);
              },
          .reference = kReference,
          .cpu = cpu::kCpuPaddedIdentity,
          .cuda = cuda::kCudaPaddedIdentity,
          .tolerance =
              [](const OpCall&, size_t, int64_t) {
                return Tolerance{0, 0};
              }};
}

TEST(PaddedIdentityTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(padded_identity({2, 5, 4, 3}, {2, 1, 2}));
}

TEST(PaddedIdentityTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(padded_identity({2, 5, 4, 3}, {2, 1, 2}));
  check_on_all_devices(padded_identity({2, 5, 6, 8}, {2, 4, 4}));
  check_on_all_devices(padded_identity({1, 4, 4, 16}, {2, 8, 8}));
  check_on_all_devices(padded_identity({3, 3, 2, 16}, {1, 0, 5}));
  check_on_all_devices(padded_identity({1, 7, 7, 264}, {3, 8, 0}));
}

}  // namespace
}  // namespace lockstep::test
