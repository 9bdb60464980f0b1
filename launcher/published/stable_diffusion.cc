#include <algorithm>
#include <cmath>

#include "launcher/published/convolution_counter.h"
#include "launcher/published/networks.h"

namespace lockstep::published {
namespace {

// A block of two convolutions with group norms, which eager code computes in FP32.
void add_residual_block(
    ConvolutionCounter& net, double batch, double inputs, double outputs, const Size& size) {
  const auto norm = [&](double channels) {
    net.walk(net.elements(channels, size), {8, 10});
    net.walk(net.elements(channels, size), {2, 3}, {0, 1});
  };
  norm(inputs);
  net.add(plain(conv(inputs, outputs, 3)), size);
  net.linear(batch, outputs, 1280);  // of the time
  net.walk(net.elements(outputs, size), {2, 1}, {0, 1});
  norm(outputs);
  net.add(plain(conv(outputs, outputs, 3)), size);
  if (inputs != outputs) net.add(plain(conv(inputs, outputs, 1)), size);
  net.residual(outputs, size);
}

void add_spatial_transformer(ConvolutionCounter& net,
                             double batch,
                             double channels,
                             const Size& size) {
  constexpr double kTextTokens = 77, kTextWidth = 1024, kHead = 64;
  const double pixels = size.pixels(), m = batch * pixels, elements = m * channels;
  net.walk(elements, {3, 5});
  net.linear(m, channels, channels);
  net.walk(elements, {2, 2});
  for (const bool text : {false, true}) {
    net.walk(elements, {6, 8});
    net.linear(m, channels, channels);
    net.linear(text ? batch * kTextTokens : m, 2 * channels, text ? kTextWidth : channels);
    net.attention({batch * channels / kHead, pixels, text ? kTextTokens : pixels, kHead});
    net.linear(m, channels, channels);
    net.walk(elements, {3, 2}, {1, 1});
  }
  net.walk(elements, {2, 4});
  net.linear(m, 8 * channels, channels);
  net.walk(4 * elements, {5, 7}, {3, 5});
  net.linear(m, channels, 4 * channels);
  net.walk(elements, {3, 2}, {1, 1});
  net.linear(m, channels, channels);
  net.walk(elements, {5, 4}, {3, 3});
}

// The encoder of 512x512 images to latents and the text encoder.
void add_encoders(ConvolutionCounter& net, double batch) {
  net.set_trained(false);
  Size size = {512, 512};
  double channels = 128;
  net.add(plain(conv(3, 128, 3)), size);
  for (int level = 0; level < 4; ++level) {
    const double outputs = 128 * std::min(4.0, std::exp2(level));
    for (int i = 0; i < 2; ++i, channels = outputs) {
      net.walk(net.elements(channels, size), {5, 0});
      net.add(plain(conv(channels, outputs, 3)), size);
      net.walk(net.elements(outputs, size), {5, 0});
      net.add(plain(conv(outputs, outputs, 3)), size);
      net.walk(net.elements(outputs, size), {3, 0});
      if (channels != outputs) net.add(plain(conv(channels, outputs, 1)), size);
    }
    if (level < 3) size = net.add(plain(conv(channels, channels, 3, 2)), size);
  }
  for (int i = 0; i < 4; ++i) net.add(plain(conv(channels, channels, 3)), size);
  for (int layer = 0; layer < 23; ++layer)
    for (const auto& [outputs, inputs] : {std::pair(3072, 1024),
                                          std::pair(1024, 1024),
                                          std::pair(4096, 1024),
                                          std::pair(1024, 4096)})
      net.linear(batch * 77, outputs, inputs);
  net.set_trained(true);
}

}  // namespace

NetworkWork stable_diffusion(double batch, bool with_encoders) {
  constexpr double kChannels = 320;
  constexpr std::array<double, 4> kWider = {1, 2, 4, 4};
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  Size size = {64, 64};
  double channels = kChannels;
  std::vector<double> skipped = {channels};
  net.add(plain(conv(4, channels, 3)), size);
  for (size_t level = 0; level < 4; ++level) {
    for (int i = 0; i < 2; ++i) {
      add_residual_block(net, batch, channels, kChannels * kWider[level], size);
      channels = kChannels * kWider[level];
      if (level < 3) add_spatial_transformer(net, batch, channels, size);
      skipped.push_back(channels);
    }
    if (level == 3) break;
    size = net.add(plain(conv(channels, channels, 3, 2)), size);
    skipped.push_back(channels);
  }
  add_residual_block(net, batch, channels, channels, size);
  add_spatial_transformer(net, batch, channels, size);
  add_residual_block(net, batch, channels, channels, size);
  for (size_t level = 4; level-- > 0;) {
    for (int i = 0; i < 3; ++i) {
      const double joined = channels + skipped.back();
      skipped.pop_back();
      net.walk(net.elements(joined, size), {2, 2});
      add_residual_block(net, batch, joined, kChannels * kWider[level], size);
      channels = kChannels * kWider[level];
      if (level < 3) add_spatial_transformer(net, batch, channels, size);
    }
    if (level == 0) break;
    net.walk(net.elements(4 * channels, size), {1.25, 1.25});
    size = {2 * size.height, 2 * size.width};
    net.add(plain(conv(channels, channels, 3)), size);
  }
  net.add(conv(channels, 4, 3), size);
  if (with_encoders) add_encoders(net, batch);
  return work;
}

}  // namespace lockstep::published
