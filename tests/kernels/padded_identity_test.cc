// Catches: pixels or channels at the wrong place, what is not copied left as it was, writes outside
// an array.

#include "runtime/cpu/ops/padded_identity.h"

#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

TEST(PaddedIdentityTest, CopiesEveryStridethPixel) {
  for (const auto& [height, width, stride] :
       {std::tuple<int64_t, int64_t, int64_t>{4, 6, 2}, {5, 3, 2}, {3, 3, 1}, {7, 5, 3}}) {
    const cpu::PaddedIdentityShape s = {2, height, width, 5, {stride, 2, 3}};
    Guarded<float> x(2 * height * width * 5, 1), d_x(x.size(), 2);
    Guarded<float> y(2 * s.out_height() * s.out_width() * 10, 1), d_y(y.size(), 3);
    test::fill_uniform(x, -1, 1, 1);
    test::fill_uniform(d_y, -1, 1, 2);
    cpu::padded_identity_forward(s, x.data(), y.data());
    cpu::padded_identity_backward(s, d_y.data(), d_x.data());
    std::vector<float> expected(static_cast<size_t>(y.size()), 0.0f),
        expected_d_x(static_cast<size_t>(x.size()), 0.0f);
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t h = 0; h < height; h += stride) {
        for (int64_t w = 0; w < width; w += stride) {
          for (int64_t c = 0; c < 5; ++c) {
            const int64_t from = ((n * height + h) * width + w) * 5 + c;
            const int64_t to =
                ((n * s.out_height() + h / stride) * s.out_width() + w / stride) * 10 + 2 + c;
            expected[static_cast<size_t>(to)] = x[from];
            expected_d_x[static_cast<size_t>(from)] = d_y[to];
          }
        }
      }
    }
    test::expect_same_bits(y.copy(), expected, "y");
    test::expect_same_bits(d_x.copy(), expected_d_x, "d_x");
  }
}

}  // namespace
}  // namespace lockstep
