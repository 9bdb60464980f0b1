// Catches: a layer that is missing, has other extents or another name than torchvision's,
// statistics that are not parameters, FLOPs that count something else, images that a network cannot
// take.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/registry.h"
#include "runtime/base/error.h"
#include "tests/reference/opened_models.h"

namespace lockstep::models {
namespace {

ModelIo images(int64_t side, int64_t channels = 3) {
  ModelIo io;
  io.classes = 1000;
  io.height = io.width = side;
  io.channels = channels;
  io.mean.assign(static_cast<size_t>(channels), 0.5f);
  io.std.assign(static_cast<size_t>(channels), 0.25f);
  return io;
}

graph::Graph build(ModelConfig model,
                   const ModelIo& io,
                   graph::Purpose purpose = graph::Purpose::kTraining) {
  return build_model(testing::resolved(model, io), io, 2, purpose);
}

// Parameters as other programs count them, without running statistics.
int64_t trained(const graph::Graph& graph) {
  int64_t count = 0;
  for (const TensorId id : graph.parameters) {
    if (graph[id].running_momentum == 0) count += graph.shape(id).elements();
  }
  return count;
}

ResnetConfig resnet(int64_t depth) {
  ResnetConfig config;
  config.depth = depth;
  return config;
}

Shape shape_of(const graph::Graph& graph, const std::string& name) {
  for (const TensorId id : graph.parameters) {
    if (graph[id].name == name) return graph.shape(id);
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

// DiT-XL/2 on four channels, as the authors' autoencoder has them.
DitConfig dit_xl() {
  DitConfig config;
  config.layers = 28;
  config.heads = 16;
  config.width = 1152;
  return config;
}

TEST(VisionModels, HaveTheParametersOfTorchvision) {
  const ModelIo io = images(224);
  EXPECT_EQ(trained(build(resnet(18), io)), 11'689'512);
  EXPECT_EQ(trained(build(resnet(34), io)), 21'797'672);
  EXPECT_EQ(trained(build(resnet(50), io)), 25'557'032);
  EXPECT_EQ(trained(build(resnet(101), io)), 44'549'160);
  EXPECT_EQ(trained(build(resnet(152), io)), 60'192'808);
  struct Vgg {
    int64_t depth, parameters, with_norms;
  };
  for (const Vgg& of : {Vgg{11, 132'863'336, 132'868'840},
                        {13, 133'047'848, 133'053'736},
                        {16, 138'357'544, 138'365'992},
                        {19, 143'667'240, 143'678'248}}) {
    EXPECT_EQ(trained(build(VggConfig{.depth = of.depth}, io)), of.parameters);
    EXPECT_EQ(trained(build(VggConfig{.depth = of.depth, .batch_norm = true}, io)), of.with_norms);
  }
  EXPECT_EQ(trained(build(AlexnetConfig{}, io)), 61'100'840);
  EXPECT_EQ(trained(build(MobilenetV2Config{}, io)), 3'504'872);
  ResnetConfig resnext = resnet(50);
  resnext.groups = 32;
  resnext.width_per_group = 4;
  EXPECT_EQ(trained(build(resnext, io)), 25'028'904);
  ResnetConfig wide = resnet(50);
  wide.width_per_group = 128;
  EXPECT_EQ(trained(build(wide, io)), 68'883'240);
  EXPECT_EQ(trained(build(VitConfig{}, io)), 86'567'656);
}

TEST(VisionModels, HaveTheParametersOfThePapers) {
  ModelIo io = images(32);
  io.classes = 10;
  ResnetConfig config = resnet(20);
  config.shortcut = ResnetConfig::Shortcut::kPadded;
  EXPECT_EQ(trained(build(config, io)), 269'722);
  config.depth = 110;
  EXPECT_EQ(trained(build(config, io)), 1'727'962);
  // The authors' 675,129,632, less what says how sure the network is of each of its 4 channels.
  EXPECT_EQ(trained(build(dit_xl(), images(32, 4))), 675'129'632 - 16 * (1152 + 1));
  io.channels = 1;
  io.mean.resize(1);
  io.std.resize(1);
  EXPECT_EQ(trained(build(LenetConfig{}, io)), 61'706);
}

TEST(VisionModels, NamesAndExtentsOfSomeTensors) {
  const graph::Graph resnet50 = build(resnet(50), images(224));
  EXPECT_EQ(shape_of(resnet50, "conv1.weight"), Shape({64, 7, 7, 3}));
  EXPECT_EQ(shape_of(resnet50, "layer1.0.downsample.0.weight"), Shape({256, 1, 1, 64}));
  EXPECT_EQ(shape_of(resnet50, "layer4.2.bn3.running_var"), Shape({2048}));
  EXPECT_EQ(shape_of(resnet50, "fc.weight"), Shape({1000, 2048}));
  const graph::Graph vgg = build(VggConfig{}, images(224));
  EXPECT_EQ(shape_of(vgg, "features.28.bias"), Shape({512}));
  EXPECT_EQ(shape_of(vgg, "classifier.0.weight"), Shape({4096, 25088}));
  EXPECT_EQ(shape_of(vgg, "classifier.6.bias"), Shape({1000}));
  const graph::Graph vgg11 = build(VggConfig{.depth = 11, .batch_norm = true}, images(64));
  EXPECT_EQ(shape_of(vgg11, "features.0.weight"), Shape({64, 3, 3, 3}));
  EXPECT_EQ(shape_of(vgg11, "features.25.weight"), Shape({512, 3, 3, 512}));
  EXPECT_EQ(shape_of(vgg11, "features.26.running_mean"), Shape({512}));
  EXPECT_EQ(shape_of(vgg11, "classifier.0.weight"), Shape({4096, 25088}));
  EXPECT_EQ(shape_of(build(VggConfig{.depth = 19}, images(64)), "features.34.weight"),
            Shape({512, 3, 3, 512}));
  const graph::Graph resnet152 = build(resnet(152), images(64));
  EXPECT_EQ(shape_of(resnet152, "layer2.7.conv3.weight"), Shape({512, 1, 1, 128}));
  EXPECT_EQ(shape_of(resnet152, "layer3.35.bn3.bias"), Shape({1024}));
  const graph::Graph alexnet = build(AlexnetConfig{}, images(224));
  EXPECT_EQ(shape_of(alexnet, "features.10.weight"), Shape({256, 3, 3, 256}));
  EXPECT_EQ(shape_of(alexnet, "classifier.1.weight"), Shape({4096, 9216}));
  const graph::Graph mobilenet = build(MobilenetV2Config{}, images(224));
  EXPECT_EQ(shape_of(mobilenet, "features.1.conv.0.0.weight"), Shape({32, 3, 3, 1}));
  EXPECT_EQ(shape_of(mobilenet, "features.1.conv.2.running_var"), Shape({16}));
  EXPECT_EQ(shape_of(mobilenet, "features.17.conv.1.0.weight"), Shape({960, 3, 3, 1}));
  EXPECT_EQ(shape_of(mobilenet, "features.18.1.bias"), Shape({1280}));
  EXPECT_EQ(shape_of(mobilenet, "classifier.1.weight"), Shape({1000, 1280}));
  const graph::Graph projection = build(resnet(32), images(32));
  EXPECT_EQ(shape_of(projection, "layer2.0.shortcut.0.weight"), Shape({32, 1, 1, 16}));
}

TEST(VisionModels, OrderInFilesIsKnown) {
  const graph::Graph graph = build(AlexnetConfig{}, images(224));
  for (const TensorId id : graph.parameters) {
    const graph::Tensor& tensor = graph[id];
    if (tensor.shape.rank() == 4) {
      EXPECT_EQ(tensor.channels_last, tensor.shape) << tensor.name;
    }
    if (tensor.name == "classifier.1.weight") {
      EXPECT_EQ(tensor.channels_last, Shape({4096, 6, 6, 256}));
    }
    if (tensor.name == "classifier.4.weight") {
      EXPECT_EQ(tensor.channels_last.rank(), 0);
    }
  }
}

// The figures that are published for these networks, forward multiply-adds; to the last layer.
TEST(VisionModels, FlopsAreThreeForwardPasses) {
  const auto giga = [](const ModelConfig& model, const ModelIo& io) {
    return testing::flops_per_sample(testing::resolved(model, io), io) / 6e9;
  };
  EXPECT_NEAR(giga(resnet(50), images(224)), 4.089, 0.001);
  EXPECT_NEAR(giga(resnet(18), images(224)), 1.814, 0.001);
  EXPECT_NEAR(giga(resnet(152), images(224)), 11.514, 0.001);
  EXPECT_NEAR(giga(VggConfig{}, images(224)), 15.470, 0.001);
  EXPECT_NEAR(giga(VggConfig{.depth = 11}, images(224)), 7.609, 0.001);
  EXPECT_NEAR(giga(VggConfig{.depth = 13}, images(224)), 11.308, 0.001);
  EXPECT_NEAR(giga(VggConfig{.depth = 19}, images(224)), 19.632, 0.001);
  EXPECT_NEAR(giga(AlexnetConfig{}, images(224)), 0.714, 0.001);
  EXPECT_NEAR(giga(MobilenetV2Config{}, images(224)), 0.301, 0.001);
  EXPECT_NEAR(giga(VitConfig{}, images(224)), 17.564, 0.001);  // as torchvision counts
  EXPECT_NEAR(giga(dit_xl(), images(32, 4)), 118.64, 0.05);    // as the authors count
  ResnetConfig small = resnet(18);
  small.stem = ResnetConfig::Stem::kCifar;
  EXPECT_NEAR(giga(small, images(32)), 0.556, 0.001);
}

TEST(VisionModels, TakeImagesOfOtherSizes) {
  for (const int64_t side : {32, 64, 97, 160, 448}) {
    EXPECT_NO_THROW(build(resnet(50), images(side))) << side;
    // The classifier sees as many pixels of any size, as torchvision's.
    EXPECT_EQ(trained(build(VggConfig{}, images(side))), 138'357'544) << side;
  }
  for (const int64_t side : {63, 64, 100, 255, 300})
    EXPECT_EQ(trained(build(AlexnetConfig{}, images(side))), 61'100'840) << side;
  for (const auto& [height, width] : {std::pair(224, 448), {448, 224}, {33, 500}}) {
    ModelIo io = images(224);
    io.height = height;
    io.width = width;
    EXPECT_EQ(trained(build(VggConfig{}, io)), trained(build(VggConfig{}, images(224))));
  }
  EXPECT_NO_THROW(build(LenetConfig{}, images(28)));
  EXPECT_THROW(build(AlexnetConfig{}, images(62)), ConfigError);
  EXPECT_THROW(build(VggConfig{}, images(31)), ConfigError);
  EXPECT_THROW(build(LenetConfig{}, images(20)), ConfigError);
}

TEST(VisionModels, RefuseFewerClassesThanTheDataHave) {
  ResnetConfig config = resnet(18);
  config.classes = 10;
  EXPECT_THROW(testing::resolved(config, images(32)), ConfigError);
  config.classes = 1001;
  EXPECT_NO_THROW(testing::resolved(config, images(32)));
}

TEST(VisionModels, ZeroInitGammaIsOfTheLastNormOfEachBlock) {
  ResnetConfig config = resnet(50);
  config.zero_init_gamma = true;
  const graph::Graph graph = build(config, images(64));
  for (const TensorId id : graph.parameters) {
    const graph::Tensor& tensor = graph[id];
    if (tensor.shape.rank() != 1 || !tensor.name.ends_with(".weight")) continue;
    const bool last = tensor.name.find("bn3") != std::string::npos;
    EXPECT_EQ(tensor.initializer.value, last ? 0 : 1) << tensor.name;
  }
}

}  // namespace
}  // namespace lockstep::models
