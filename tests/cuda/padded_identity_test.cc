// Catches: a pixel or a channel beside the right one, padding that is not zero, pixels that no
// output saw left unwritten, vectors that straddle the padding, writes outside an array.

#include "runtime/cuda/ops/padded_identity.h"

#include "runtime/cpu/ops/padded_identity.h"
#include "tests/fibers/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

template <typename T>
class CudaPaddedIdentityTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaPaddedIdentityTest, test::StoredTypes);

// A copy: what the CPU gives, exactly.
TYPED_TEST(CudaPaddedIdentityTest, MatchesTheCpuInAnyOrder) {
  using T = TypeParam;
  for (const cuda::PaddedIdentityShape& s :
       {cuda::PaddedIdentityShape{2, 6, 6, 16, {2, 8, 8}},
        cuda::PaddedIdentityShape{2, 5, 7, 16, {2, 8, 8}},
        cuda::PaddedIdentityShape{1, 4, 5, 8, {1, 3, 5}},
        cuda::PaddedIdentityShape{1, 7, 4, 3, {3, 0, 2}},
        cuda::PaddedIdentityShape{1, 3, 3, 256, {2, 128, 128}}}) {
    const cpu::PaddedIdentityShape cpu_shape = {
        s.images, s.height, s.width, s.channels, s.attributes};
    const int64_t in = s.images * s.height * s.width * s.channels,
                  out = s.images * s.out_height() * s.out_width() * s.out_channels();
    test::for_each_order([&](const std::string& order) {
      Guarded<T> x(in), d_x(in), y(out), d_y(out);
      test::fill_stored(x, -1, 1, 1);
      test::fill_stored(d_y, -1, 1, 2);
      cuda::padded_identity_forward<T>(s, x.data(), y.data(), nullptr);
      cuda::padded_identity_backward<T>(s, d_y.data(), d_x.data(), nullptr);
      std::vector<float> wide_x, wide_d_y, wide_y(static_cast<size_t>(out)),
          wide_d_x(static_cast<size_t>(in));
      for (const T& value : x) wide_x.push_back(to_float(value));
      for (const T& value : d_y) wide_d_y.push_back(to_float(value));
      cpu::padded_identity_forward(cpu_shape, wide_x.data(), wide_y.data());
      cpu::padded_identity_backward(cpu_shape, wide_d_y.data(), wide_d_x.data());
      test::expect_close(test::as_doubles(y), wide_y, 0.0, "y " + order);
      test::expect_close(test::as_doubles(d_x), wide_d_x, 0.0, "d_x " + order);
      return test::bytes_of(y, d_x);
    });
  }
}

}  // namespace
}  // namespace lockstep
