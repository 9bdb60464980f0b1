// Catches: factors of the wrong channel, pixels lost at the end, reads or writes outside an array,
// images mixed with the wrong one, in wrong shares, or with padding.

#include "runtime/cpu/ops/image_normalize.h"

#include "tests/reference/images.h"
#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

void check(const test::ImagesToNormalise& images, const std::string& target) {
  Guarded<uint8_t> x(images.elements(), 1);
  x.assign(images.pixels());
  Guarded<float> y(images.elements(), 1);
  Guarded<std::byte> workspace(
      static_cast<int64_t>(cpu::image_normalize_workspace_bytes(images.channels)));
  cpu::image_normalize({.images = images.count,
                        .pixels = images.pixels_each,
                        .channels = images.channels,
                        .x = x.data(),
                        .mean = images.mean.data(),
                        .std = images.std.data(),
                        .y = y.data(),
                        .workspace = workspace.data(),
                        .valid_images = images.valid,
                        .mix = images.mix});
  // Values up to 3; what is mixed, the factors and the sum are rounded once each.
  test::expect_close(y, images.expected(), 8 * test::kEps, images.describe() + target);
}

TEST(ImageNormalizeTest, AgreesWithTheFormula) {
  test::for_each_target([](const std::string& target) {
    for (const int64_t channels : {1, 3, 4}) {
      for (const int64_t pixels : {1, 15, 16, 17, 1000}) {
        check({1, pixels, channels, 1, 1}, target);
        check({3, pixels, channels, 2, 1}, target);
      }
    }
  });
}

TEST(ImageNormalizeTest, MixesEachImageWithTheOneAsFarFromTheEnd) {
  test::for_each_target([](const std::string& target) {
    for (const float mix : {0.5f, 0.625f, 0.9f}) {
      for (const int64_t pixels : {1, 16, 17, 1000}) {
        check({2, pixels, 3, 2, mix}, target);
        check({5, pixels, 3, 5, mix}, target);    // the middle one is its own other
        check({5, pixels, 1, 4, mix}, target);    // the last one is padding
        check({3, pixels, 4, 100, mix}, target);  // fewer images than are valid
        check({3, pixels, 3, 0, mix}, target);
      }
    }
  });
}

TEST(ImageNormalizeTest, AnImageMixedWithItselfIsLeftAlone) {
  const test::ImagesToNormalise images{1, 1000, 3, 1, 0.7f};
  const std::vector<uint8_t> x = images.pixels();
  std::vector<std::byte> workspace(cpu::image_normalize_workspace_bytes(3));
  std::vector<float> mixed(x.size()), plain(x.size());
  cpu::ImageNormalize op{1,
                         1000,
                         3,
                         x.data(),
                         images.mean.data(),
                         images.std.data(),
                         plain.data(),
                         workspace.data(),
                         1};
  cpu::image_normalize(op);
  op.y = mixed.data();
  op.mix = images.mix;
  cpu::image_normalize(op);
  test::expect_same_bits(plain, mixed, "y");
}

TEST(ImageNormalizeTest, BitsDoNotDependOnThreadsOrVectors) {
  for (const float mix : {1.0f, 0.7f}) {
    const test::ImagesToNormalise images{3, 13337, 3, 3, mix};
    const std::vector<uint8_t> x = images.pixels();
    test::expect_reproducible<float>(
        [&] {
          std::vector<float> y(x.size());
          std::vector<std::byte> workspace(cpu::image_normalize_workspace_bytes(3));
          cpu::image_normalize({3,
                                13337,
                                3,
                                x.data(),
                                images.mean.data(),
                                images.std.data(),
                                y.data(),
                                workspace.data(),
                                3,
                                mix});
          return y;
        },
        "image_normalize");
  }
}

}  // namespace
}  // namespace lockstep
