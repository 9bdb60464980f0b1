#include <algorithm>
#include <cmath>

#include "launcher/published/convolution_counter.h"
#include "launcher/published/networks.h"

namespace lockstep::published {
namespace {

// What a residual network is made of, up to a stage. Returns channels and size.
std::pair<double, Size> add_resnet(ConvolutionCounter& net,
                                   const ResNetShape& shape,
                                   int stages,
                                   int third_stride) {
  const bool deep = shape.depth >= 50;
  const auto image = static_cast<double>(shape.image);
  Size size = net.add(conv(3, 64, 7, 2), {image, image});
  net.walk(net.elements(64, size), {1.25, 2.5});
  size = {std::ceil(size.height / 2), std::ceil(size.width / 2)};
  std::array<int, 4> blocks = {3, 4, 6, 3};
  if (shape.depth == 18) blocks = {2, 2, 2, 2};
  if (shape.depth == 101) blocks = {3, 4, 23, 3};
  if (shape.depth == 152) blocks = {3, 8, 36, 3};
  double channels = 64;
  for (int stage = 0; stage < stages; ++stage) {
    const double planes = 64 * std::exp2(stage);
    const double outputs = deep ? 4 * planes : planes;
    const double inner = std::floor(planes * shape.width * shape.groups / 64);
    for (int block = 0; block < blocks[static_cast<size_t>(stage)]; ++block) {
      const int stride = block > 0 || stage == 0 ? 1 : stage == 2 ? third_stride : 2;
      const Size in = size;
      if (deep) {
        net.add(conv(channels, inner, 1), in);
        Conv middle = conv(inner, inner, 3, stride);
        middle.groups = shape.groups;
        size = net.add(middle, in);
        net.add(without_activation(conv(inner, outputs, 1)), size);
      } else {
        size = net.add(conv(channels, outputs, 3, stride), in);
        net.add(without_activation(conv(outputs, outputs, 3)), size);
      }
      if (block == 0 && (stride != 1 || channels != outputs))
        net.add(without_activation(conv(channels, outputs, 1, stride)), in);
      if (shape.squeeze) net.squeeze(outputs, outputs / 16, size, {4, 6});
      net.residual(outputs, size);
      net.walk(net.elements(outputs, size), {2, 3}, {0, 0});
      channels = outputs;
    }
  }
  return {channels, size};
}

}  // namespace

NetworkWork resnet(double batch, const ResNetShape& shape) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  const auto [channels, size] = add_resnet(net, shape, 4, 2);
  net.walk(net.elements(channels, size), {1, 1});
  net.classifier(channels, 1000);
  return work;
}

NetworkWork vgg(double batch, int depth) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  Size size = {224, 224};
  const int deep = depth == 19 ? 4 : 3;
  double inputs = 3;
  for (const auto& [channels, count] : {std::pair(64, 2),
                                        std::pair(128, 2),
                                        std::pair(256, deep),
                                        std::pair(512, deep),
                                        std::pair(512, deep)}) {
    for (int i = 0; i < count; ++i, inputs = channels)
      net.add(with_bias(conv(inputs, channels, 3)), size);
    net.walk(net.elements(channels, size), {1.25, 2.25});
    size = {size.height / 2, size.width / 2};
  }
  net.classifier(25088, 4096);
  net.classifier(4096, 4096);
  net.classifier(4096, 1000);
  return work;
}

NetworkWork inception_v3(double batch) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  const auto sides = [](double inputs, double outputs, int height, int width) -> Conv {
    return {.inputs = inputs, .outputs = outputs, .height = height, .width = width};
  };
  const auto pool = [](const Size& in) -> Size {
    const double side = std::floor((in.height - 3) / 2) + 1;
    return {side, side};
  };
  Size size = net.add(unpadded(conv(3, 32, 3, 2)), {299, 299});
  size = net.add(unpadded(conv(32, 32, 3)), size);
  net.add(conv(32, 64, 3), size);
  size = pool(size);
  net.add(conv(64, 80, 1), size);
  size = pool(net.add(unpadded(conv(80, 192, 3)), size));
  double inputs = 192;
  for (const double pooled : {32.0, 64.0, 64.0}) {
    for (const Conv& each : {conv(inputs, 64, 1),
                             conv(inputs, 48, 1),
                             conv(48, 64, 5),
                             conv(inputs, 64, 1),
                             conv(64, 96, 3),
                             conv(96, 96, 3),
                             conv(inputs, pooled, 1)})
      net.add(each, size);
    net.walk(net.elements(inputs, size), {2, 2});
    inputs = 224 + pooled;
  }
  Size out = net.add(unpadded(conv(inputs, 384, 3, 2)), size);
  net.add(conv(inputs, 64, 1), size);
  net.add(conv(64, 96, 3), size);
  net.add(unpadded(conv(96, 96, 3, 2)), size);
  size = out;
  inputs = 768;
  for (const double inner : {128.0, 160.0, 160.0, 192.0}) {
    for (const Conv& each : {conv(inputs, 192, 1),
                             conv(inputs, inner, 1),
                             sides(inner, inner, 1, 7),
                             sides(inner, 192, 7, 1),
                             conv(inputs, inner, 1),
                             sides(inner, inner, 7, 1),
                             sides(inner, inner, 7, 1),
                             sides(inner, inner, 7, 1),
                             sides(inner, 192, 7, 1),
                             conv(inputs, 192, 1)})
      net.add(each, size);
    net.walk(net.elements(inputs, size), {2, 2});
  }
  net.add(conv(inputs, 192, 1), size);
  out = net.add(unpadded(conv(192, 320, 3, 2)), size);
  for (const Conv& each : {conv(inputs, 192, 1),
                           sides(192, 192, 1, 7),
                           sides(192, 192, 7, 1),
                           unpadded(conv(192, 192, 3, 2))})
    net.add(each, size);
  size = out;
  inputs = 1280;
  for (int block = 0; block < 2; ++block) {
    for (const Conv& each : {conv(inputs, 320, 1),
                             conv(inputs, 384, 1),
                             sides(384, 384, 1, 3),
                             sides(384, 384, 3, 1),
                             conv(inputs, 448, 1),
                             conv(448, 384, 3),
                             sides(384, 384, 1, 3),
                             sides(384, 384, 3, 1),
                             conv(inputs, 192, 1)})
      net.add(each, size);
    net.walk(net.elements(inputs, size), {2, 2});
    inputs = 2048;
  }
  net.classifier(2048, 1000);
  return work;
}

NetworkWork mobile_net_v2(double batch) {
  struct Stage {
    double expansion, channels;
    int blocks, stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1},
                               {6, 24, 2, 2},
                               {6, 32, 3, 2},
                               {6, 64, 4, 2},
                               {6, 96, 3, 1},
                               {6, 160, 3, 2},
                               {6, 320, 1, 1}};
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  Size size = net.add(conv(3, 32, 3, 2), {224, 224});
  double inputs = 32;
  for (const Stage& stage : kStages) {
    for (int block = 0; block < stage.blocks; ++block) {
      const int stride = block == 0 ? stage.stride : 1;
      const double inner = inputs * stage.expansion;
      if (stage.expansion != 1) net.add(conv(inputs, inner, 1), size);
      Conv middle = conv(inner, inner, 3, stride);
      middle.groups = inner;
      size = net.add(middle, size);
      net.add(without_activation(conv(inner, stage.channels, 1)), size);
      if (stride == 1 && inputs == stage.channels) net.residual(stage.channels, size);
      inputs = stage.channels;
    }
  }
  net.add(conv(inputs, 1280, 1), size);
  net.walk(net.elements(1280, size), {1, 1});
  net.classifier(1280, 1000);
  return work;
}

NetworkWork efficient_net(double batch, int variant, int image) {
  constexpr std::array<double, 8> kWidths = {1, 1, 1.1, 1.2, 1.4, 1.6, 1.8, 2};
  constexpr std::array<double, 8> kDepths = {1, 1.1, 1.2, 1.4, 1.8, 2.2, 2.6, 3.1};
  struct Stage {
    double expansion, channels, blocks;
    int stride, filter;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1, 3},
                               {6, 24, 2, 2, 3},
                               {6, 40, 2, 2, 5},
                               {6, 80, 3, 2, 3},
                               {6, 112, 3, 1, 5},
                               {6, 192, 4, 2, 5},
                               {6, 320, 1, 1, 3}};
  const double wider = kWidths.at(static_cast<size_t>(variant));
  const auto rounded = [&](double channels) {
    channels *= wider;
    const double multiple = std::max(8.0, std::floor((channels + 4) / 8) * 8);
    return multiple < 0.9 * channels ? multiple + 8 : multiple;
  };
  const auto swish = [](Conv conv) {
    conv.activation = Activation::kSwish;
    return conv;
  };
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  const auto side = static_cast<double>(image);
  Size size = net.add(swish(conv(3, rounded(32), 3, 2)), {side, side});
  double inputs = rounded(32);
  for (const Stage& stage : kStages) {
    const double blocks = std::ceil(stage.blocks * kDepths.at(static_cast<size_t>(variant)));
    for (int block = 0; block < blocks; ++block) {
      const int stride = block == 0 ? stage.stride : 1;
      const double outputs = rounded(stage.channels), inner = inputs * stage.expansion;
      if (stage.expansion != 1) net.add(swish(conv(inputs, inner, 1)), size);
      Conv middle = swish(conv(inner, inner, stage.filter, stride));
      middle.groups = inner;
      size = net.add(middle, size);
      net.squeeze(inner, std::max(1.0, std::floor(inputs / 4)), size, {5, 8});
      net.add(without_activation(conv(inner, outputs, 1)), size);
      if (stride == 1 && inputs == outputs)
        net.walk(net.elements(outputs, size), {4, 4}, {2, 2}, {2, 2}, {2, 2});
      inputs = outputs;
    }
  }
  net.add(swish(conv(inputs, rounded(1280), 1)), size);
  net.classifier(rounded(1280), 1000);
  return work;
}

NetworkWork convnext(double batch, const ConvNextShape& shape) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  const std::array<int, 4> blocks = {3, 3, shape.blocks, 3};
  double side = 56, before = 0;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const double channels = shape.width * std::exp2(static_cast<double>(stage));
    if (stage > 0) {
      side /= 2;
      net.walk(batch * before * 4 * side * side, {2, 4});
    }
    const double pixels = batch * side * side, inputs = stage > 0 ? before * 4 : 48;
    net.product({.m = pixels, .n = channels, .k = inputs, .convolution = true}, channels * inputs);
    for (int block = 0; block < blocks[stage]; ++block) {
      const double elements = pixels * channels;
      net.depthwise({elements, elements, 49}, 49 * channels);
      net.walk(elements, {2, 4});
      net.linear(pixels, 4 * channels, channels);
      net.walk(4 * elements, {2, 3}, {1, 2});
      net.linear(pixels, channels, 4 * channels);
      net.walk(elements, {2, 4}, {1, 2});
      net.walk(elements, {3, 1}, {1, 1});
    }
    before = channels;
  }
  net.classifier(before, 1000);
  return work;
}

NetworkWork unet(double batch) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  Size size = {572, 572};
  double inputs = 1;
  const auto pair = [&](double outputs) {
    for (int i = 0; i < 2; ++i, inputs = outputs)
      size = net.add(unpadded(with_bias(conv(inputs, outputs, 3))), size);
  };
  for (int level = 0; level < 5; ++level) {
    pair(64 * std::exp2(level));
    if (level == 4) break;
    net.walk(net.elements(inputs, size), {1.25, 2.25});
    size = {std::floor(size.height / 2), std::floor(size.width / 2)};
  }
  for (int level = 3; level >= 0; --level) {
    const double outputs = 64 * std::exp2(level);
    const Size in = size;
    size = {2 * in.height, 2 * in.width};
    net.up(inputs, outputs, in, 4, size);
    inputs = 2 * outputs;
    pair(outputs);
  }
  net.add(plain(conv(inputs, 2, 1)), size);
  net.walk(net.elements(2, size), {8, 6});
  return work;
}

NetworkWork nn_unet(double batch, bool volumes) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  const double deepest = volumes ? 320 : 512;
  const std::array<double, 6> filters = {32, 64, 128, 256, deepest, deepest};
  Size size = volumes ? Size{128, 128, 128} : Size{192, 160, 1};
  std::vector<Size> sizes;
  double inputs = 4;
  for (size_t level = 0; level < filters.size(); ++level) {
    for (int i = 0; i < 2; ++i, inputs = filters[level])
      size = net.add(conv(inputs, filters[level], 3, level > 0 && i == 0 ? 2 : 1), size, volumes);
    sizes.push_back(size);
  }
  for (size_t level = filters.size() - 1; level-- > 0;) {
    const double outputs = filters[level];
    net.up(inputs, outputs, size, volumes ? 8 : 4, sizes[level]);
    size = sizes[level];
    net.add(conv(2 * outputs, outputs, 3), size, volumes);
    net.add(conv(outputs, outputs, 3), size, volumes);
    inputs = outputs;
    if (level > 2) continue;
    // Classes at three resolutions, each with a loss.
    net.add(plain(conv(outputs, 4, 1)), size);
    net.walk(net.elements(4, size), {10, 8}, {10, 8}, {10, 8}, {10, 8});
  }
  return work;
}

NetworkWork ssd300(double batch) {
  NetworkWork work;
  ConvolutionCounter net(work, batch);
  ResNetShape shape;
  shape.image = 300;
  add_resnet(net, shape, 3, 1);
  struct Extra {
    double inner, outputs;
    int stride;
    double side;
  };
  constexpr Extra kExtras[] = {
      {256, 512, 2, 19}, {256, 512, 2, 10}, {128, 256, 2, 5}, {128, 256, 1, 3}, {128, 256, 1, 1}};
  double side = 38, inputs = 1024;
  for (const Extra& extra : kExtras) {
    net.add(conv(inputs, extra.inner, 1), {side, side});
    const Conv second = conv(extra.inner, extra.outputs, 3, extra.stride);
    net.add(extra.stride == 1 ? unpadded(second) : second, {side, side});
    inputs = extra.outputs;
    side = extra.side;
  }
  struct Map {
    double side, inputs, boxes;
  };
  constexpr Map kMaps[] = {
      {38, 1024, 4}, {19, 512, 6}, {10, 512, 6}, {5, 256, 6}, {3, 256, 4}, {1, 256, 4}};
  for (const Map& map : kMaps)
    net.add(plain(conv(map.inputs, map.boxes * 85, 3)), {map.side, map.side});
  net.walk(batch * 8732 * 85, {10, 8}, {10, 8}, {10, 8}, {40, 20});
  return work;
}

}  // namespace lockstep::published
