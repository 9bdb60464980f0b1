// Catches: factors of the wrong channel, channels mixed up where a vector begins amid a pixel,
// pixels lost at the end, images mixed with the wrong one, in wrong shares or with padding, above
// all where a vector spans two images.
#include "runtime/graph/ops/image_normalize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::ImageNormalize<double> op{call};
  const int64_t each = op.pixels * op.channels;
  const int64_t valid = std::min(op.images, call.lane().valid_rows);
  for (int64_t i = 0; i < op.images * each; ++i) {
    const auto normalised = [&](int64_t at) {
      return (op.x[at] / 255.0 - op.mean[at % op.channels]) / op.std[at % op.channels];
    };
    const int64_t image = i / each, other = image < valid ? valid - 1 - image : image;
    const double share = call.lane().mix;
    op.y[i] = share * normalised(i) + (1 - share) * normalised(other * each + i % each);
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kImageNormalize, "double", reference}};

struct Case {
  int64_t images, pixels, channels;
  int64_t valid = 1;
  float mix = 1;
};

OpTest image_normalize(const Case& at) {
  graph::ImageNormalizeAttributes attributes{{0.485f, 0.456f, 0.406f, 0.1f, 0.5f, 0.2f, 0.3f},
                                             {0.229f, 0.224f, 0.225f, 2.0f, 0.25f, 0.5f, 0.3f}};
  attributes.mean.resize(static_cast<size_t>(at.channels));
  attributes.std.resize(static_cast<size_t>(at.channels));
  return {
      .name = "image_normalize of " + std::to_string(at.images) + " images, " +
              std::to_string(at.valid) + " valid, of " + std::to_string(at.pixels) + " pixels of " +
              std::to_string(at.channels) + ", mix " + std::to_string(at.mix),
      .build =
          [=](graph::GraphBuilder& builder) {
            const TensorId x =
                builder.input("x", {at.images, 1, at.pixels, at.channels}, DType::kU8);
            ops::image_normalize(builder, "y", x, attributes);
          },
      .reference = kReference,
      .cpu = cpu::kCpuImageNormalize,
      .cuda = cuda::kCudaImageNormalize,
      // Values up to 3; what is mixed, the factors and the sum are rounded once each.
      .tolerance =
          [](const graph::OpCall& expected, graph::OutputName, int64_t i) {
            return Tolerance{8, std::abs(expected.output<double>(graph::ImageNormalizeOut::kY)[i])};
          },
      .gradients = 0,
      .value = [](const std::string&,
                  int64_t i) { return static_cast<double>((i * i * 37 + i * 11) % 256); },
      .lane = {.valid_rows = at.valid, .mix = at.mix}};
}

TEST(ImageNormalizeTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t channels : {1, 3, 4, 7}) {
    for (const int64_t pixels : {1, 5, 15, 16, 17, 1024, 1357}) {
      check_on_all_devices(image_normalize({1, pixels, channels}));
      check_on_all_devices(image_normalize({3, pixels, channels, 2}));
    }
  }
}

TEST(ImageNormalizeTest, MixesEachImageWithTheOneAsFarFromTheEnd) {
  for (const int64_t pixels : {1, 3, 16, 17, 64, 357, 1000}) {
    check_on_all_devices(image_normalize({2, pixels, 3, 2, 0.625f}));
    check_on_all_devices(image_normalize({5, pixels, 3, 5, 0.5f}));     // the middle one is its own
    check_on_all_devices(image_normalize({5, pixels, 1, 4, 0.9f}));     // the last one is padding
    check_on_all_devices(image_normalize({3, pixels, 4, 100, 0.75f}));  // fewer than are valid
    check_on_all_devices(image_normalize({4, pixels, 3, 0, 0.75f}));
  }
  check_on_all_devices(image_normalize({3, 13337, 3, 3, 0.7f}));  // several threads
}

}  // namespace
}  // namespace lockstep::test
