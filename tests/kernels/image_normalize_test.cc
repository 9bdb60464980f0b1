// Catches: factors of the wrong channel, pixels lost at the end, reads or writes outside an array.

#include "runtime/cpu/image_normalize.h"

#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

TEST(ImageNormalizeTest, AgreesWithTheFormula) {
  test::for_each_target([](const std::string& target) {
    for (const int64_t channels : {1, 3, 4}) {
      for (const int64_t pixels : {1, 15, 16, 17, 1000}) {
        const std::vector<float> mean = {0.485f, 0.456f, 0.406f, 0.1f};
        const std::vector<float> std = {0.229f, 0.224f, 0.225f, 2.0f};
        const int64_t n = pixels * channels;
        Guarded<uint8_t> x(n, 1);
        Guarded<float> y(n, 1);
        Guarded<std::byte> workspace(
            static_cast<int64_t>(cpu::image_normalize_workspace_bytes(channels)));
        std::vector<double> expected;
        for (int64_t i = 0; i < n; ++i) {
          x[i] = static_cast<uint8_t>(i * 37);
          const auto c = static_cast<size_t>(i % channels);
          expected.push_back((x[i] / 255.0 - mean[c]) / std[c]);
        }
        cpu::image_normalize(
            pixels, channels, x.data(), mean.data(), std.data(), y.data(), workspace.data());
        // Values up to 3; the factors and the sum are rounded once each.
        test::expect_close(y, expected, 8 * test::kEps, "y " + target);
      }
    }
  });
}

TEST(ImageNormalizeTest, BitsDoNotDependOnThreadsOrVectors) {
  std::vector<uint8_t> x(3 * 40001);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 61);
  const std::vector<float> mean = {0.5f, 0.4f, 0.3f}, std = {0.2f, 0.3f, 0.4f};
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> y(x.size());
        std::vector<std::byte> workspace(cpu::image_normalize_workspace_bytes(3));
        cpu::image_normalize(
            40001, 3, x.data(), mean.data(), std.data(), y.data(), workspace.data());
        return y;
      },
      "image_normalize");
}

}  // namespace
}  // namespace lockstep
