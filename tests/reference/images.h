#pragma once
// Images that are normalised and mixed, in double precision.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

struct ImagesToNormalise {
  int64_t count, pixels_each, channels;
  int64_t valid;
  float mix;
  std::vector<float> mean = std::vector<float>{0.485f, 0.456f, 0.406f, 0.1f, 0.5f, 0.2f, 0.3f};
  std::vector<float> std = std::vector<float>{0.229f, 0.224f, 0.225f, 2.0f, 0.25f, 0.5f, 0.3f};

  int64_t elements() const { return count * pixels_each * channels; }

  std::vector<uint8_t> pixels() const {
    std::vector<uint8_t> x;
    for (int64_t i = 0; i < elements(); ++i) x.push_back(static_cast<uint8_t>(i * i * 37 + i * 11));
    return x;
  }

  // Image i of the first `valid` is mix of itself and 1 - mix of number valid - 1 - i.
  std::vector<double> expected() const {
    const std::vector<uint8_t> x = pixels();
    const int64_t each = pixels_each * channels, mixed = std::min(count, valid);
    std::vector<double> y;
    for (int64_t i = 0; i < elements(); ++i) {
      const auto normalised = [&](int64_t at) {
        const auto c = static_cast<size_t>(at % channels);
        return (x[static_cast<size_t>(at)] / 255.0 - mean[c]) / std[c];
      };
      const int64_t image = i / each, other = image < mixed ? mixed - 1 - image : image;
      const double share = mix;
      y.push_back(share * normalised(i) + (1 - share) * normalised(other * each + i % each));
    }
    return y;
  }

  std::string describe() const {
    return std::to_string(count) + " images, " + std::to_string(valid) + " valid, of " +
           std::to_string(pixels_each) + " pixels of " + std::to_string(channels) + ", mix " +
           std::to_string(mix) + ", ";
  }
};

}  // namespace lockstep::test
