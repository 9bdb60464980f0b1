// Asks cuDNN itself, without a GPU, whether it has deterministic engines for the convolutions of
// ResNet-50, within the workspace that is set aside: see cudnn_attention_test.cc.
// Catches: a pass that would go to the native kernels, which are slower, on a user's GPU, and a
// workspace that keeps cuDNN from the engine that it prefers.

#include "runtime/cuda/cudnn/cudnn_conv2d.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/cuda/described_gpus.h"

namespace lockstep::test {
namespace {

using cuda::Conv2dPass;

const char* name_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::kForward: return "forward";
    case Conv2dPass::kBackwardInput: return "gradient of x";
    case Conv2dPass::kBackwardWeight: return "gradient of w";
  }
  return "";
}

graph::Conv2dShape conv(int64_t batch,
                        int64_t size,
                        int64_t channels,
                        int64_t outputs,
                        int64_t kernel,
                        int64_t stride = 1) {
  graph::Conv2dShape shape = {.batch = batch,
                              .height = size,
                              .width = size,
                              .channels = channels,
                              .outputs = outputs,
                              .kernel_h = kernel,
                              .kernel_w = kernel};
  shape.stride_h = shape.stride_w = stride;
  shape.pad_h = shape.pad_w = kernel / 2;
  return shape;
}

// Every convolution of ResNet-50 on images of 224 x 224, each kind once.
std::vector<graph::Conv2dShape> resnet50(int64_t batch) {
  std::vector<graph::Conv2dShape> shapes = {conv(batch, 224, 3, 64, 7, 2)};
  int64_t size = 56, channels = 64, width = 64;
  for (int stage = 0; stage < 4; ++stage, width *= 2) {
    const int64_t stride = stage == 0 ? 1 : 2;
    shapes.push_back(conv(batch, size, channels, width, 1));
    shapes.push_back(conv(batch, size, width, width, 3, stride));
    shapes.push_back(conv(batch, size, channels, 4 * width, 1, stride));
    size /= stride;
    channels = 4 * width;
    shapes.push_back(conv(batch, size, width, channels, 1));
    shapes.push_back(conv(batch, size, channels, width, 1));
    shapes.push_back(conv(batch, size, width, width, 3));
  }
  return shapes;
}

std::string text_of(const graph::Conv2dShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.height) + " x " +
         std::to_string(s.width) + " x " + std::to_string(s.channels) + " to " +
         std::to_string(s.outputs) + ", " + std::to_string(s.kernel_h) + " x " +
         std::to_string(s.kernel_w) + ", stride " + std::to_string(s.stride_h);
}

class CudnnConv2dTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = test::why_cudnn_cannot_be_asked();
    if (!why_not.empty()) GTEST_SKIP() << "skipped: " << why_not;
  }

  static void expect_supported(const std::vector<graph::Conv2dShape>& shapes,
                               DType dtype,
                               bool tf32,
                               std::initializer_list<GpuKind> gpus = {kH100, kA100}) {
    for (const GpuKind& gpu : gpus) {
      for (const graph::Conv2dShape& shape : shapes) {
        for (const Conv2dPass pass :
             {Conv2dPass::kForward, Conv2dPass::kBackwardInput, Conv2dPass::kBackwardWeight}) {
          if (pass == Conv2dPass::kBackwardInput && shape.channels == 3) continue;  // of images
          // A product of matrices, left to cuBLASLt.
          if (pass == Conv2dPass::kBackwardWeight && shape.kernel_h == 1 && shape.stride_h == 1)
            continue;
          cuda::CudnnConv2dKey key = {shape, dtype, tf32, pass};
          // As floats, if cuDNN can.
          key.wide = pass == Conv2dPass::kBackwardWeight && dtype != DType::kF32 &&
                     shape.channels > 3 && shape.outputs % 8 == 0 && shape.groups == 1;
          EXPECT_EQ(cuda::cudnn_answer(key, description_of(gpu)).refusal, "")
              << gpu.name << ", " << lockstep::name_of(dtype) << (tf32 ? " as tf32, " : ", ")
              << name_of(pass) << ", " << text_of(shape);
        }
      }
    }
  }
};

TEST_F(CudnnConv2dTest, RunsResnet50InBf16) { expect_supported(resnet50(64), DType::kBF16, false); }
TEST_F(CudnnConv2dTest, RunsResnet50InFp16) { expect_supported(resnet50(64), DType::kF16, false); }
TEST_F(CudnnConv2dTest, RunsResnet50InTf32) { expect_supported(resnet50(64), DType::kF32, true); }
TEST_F(CudnnConv2dTest, RunsOddBatches) {
  expect_supported({conv(7, 56, 64, 64, 3), conv(7, 224, 3, 64, 7, 2)}, DType::kBF16, false);
}

// Engines need copies of images, whose channels and groups they pad.
TEST_F(CudnnConv2dTest, RunsOddChannelsAndUnevenGroups) {
  std::vector<graph::Conv2dShape> shapes = {conv(64, 112, 8, 10, 3)};
  const auto grouped = [&](graph::Conv2dShape shape, int64_t groups) {
    shape.groups = groups;
    shapes.push_back(shape);
  };
  grouped(conv(16, 64, 64, 256, 7), 4);
  grouped(conv(64, 33, 32, 768, 3, 2), 2);
  grouped(conv(33, 64, 512, 80, 3, 2), 8);
  grouped(conv(32, 56, 128, 128, 3), 32);
  expect_supported(shapes, DType::kBF16, false, {kH100, kL40s});
}

// The plan that cuDNN would build with any workspace is the one that it builds with ours.
TEST_F(CudnnConv2dTest, HasRoomForThePreferredEngine) {
  const graph::Conv2dShape first = conv(64, 224, 3, 64, 7, 2), middle = conv(64, 28, 128, 128, 3),
                           last = conv(64, 7, 512, 512, 3), wide = conv(33, 14, 1024, 1024, 3, 2);
  for (const GpuKind& gpu : kGpus) {
    for (const graph::Conv2dShape& shape : {first, middle, last, wide}) {
      for (const Conv2dPass pass :
           {Conv2dPass::kForward, Conv2dPass::kBackwardInput, Conv2dPass::kBackwardWeight}) {
        if (pass == Conv2dPass::kBackwardInput && shape == first) continue;  // of images
        const cuda::CudnnConv2dKey key = {shape, DType::kBF16, false, pass};
        const cuda::CudnnAnswer any =
            cuda::cudnn_answer(key, description_of(gpu), {.build = true, .any_workspace = true});
        EXPECT_EQ(any.refusal, "") << gpu.name << ", " << name_of(pass) << ", " << text_of(shape);
        EXPECT_LE(static_cast<size_t>(any.workspace_bytes), cuda::cudnn_conv2d_workspace_bytes(key))
            << gpu.name << ", " << name_of(pass) << ", " << text_of(shape) << ": " << any.engine;
      }
    }
  }
}

// For execution.tune: of the engines that cuDNN lists, those that are allowed are built by their
// names, and the first of them is the one that is built without a name.
TEST_F(CudnnConv2dTest, BuildsTheEngineThatIsNamed) {
  for (const Conv2dPass pass : {Conv2dPass::kForward, Conv2dPass::kBackwardWeight}) {
    const cuda::CudnnConv2dKey key = {conv(16, 14, 256, 256, 3), DType::kBF16, false, pass};
    const cuda::DescribedGpu gpu = description_of(kH100);
    const cuda::CudnnAnswer first = cuda::cudnn_answer(key, gpu, {.build = true});
    size_t built = 0;
    for (const std::string& engine : first.offers) {
      const cuda::CudnnAnswer answer =
          cuda::cudnn_answer(key, gpu, {.build = true, .engine = engine});
      if (!answer.refusal.empty()) continue;
      EXPECT_EQ(answer.engine, engine);
      if (built == 0) {
        EXPECT_EQ(answer.engine, first.engine);
      }
      ++built;
    }
    EXPECT_GE(built, 2U) << name_of(pass);
    EXPECT_EQ(cuda::cudnn_answer(key, gpu, {.build = true, .engine = "eng999"}).refusal,
              "cuDNN does not offer it");
  }
}

// VGG's and AlexNet's, with bias and ReLU in the same kernel.
TEST_F(CudnnConv2dTest, AddsBiasAndActivates) {
  for (const GpuKind& gpu : {kH100, kA100}) {
    for (const graph::Conv2dShape& shape : {conv(32, 56, 256, 256, 3), conv(32, 28, 256, 512, 3)}) {
      const cuda::CudnnConv2dKey key = {
          shape, DType::kBF16, false, Conv2dPass::kForward, true, true};
      EXPECT_EQ(cuda::cudnn_answer(key, description_of(gpu)).refusal, "")
          << gpu.name << ", " << text_of(shape);
    }
  }
}

// The checks above could not fail if cuDNN said yes to everything.
TEST_F(CudnnConv2dTest, AnImpossibleShapeIsRefused) {
  graph::Conv2dShape shape = conv(4, 56, 64, 64, 3);
  shape.groups = 5;
  const cuda::CudnnConv2dKey key = {shape, DType::kBF16, false, Conv2dPass::kForward};
  EXPECT_NE(cuda::cudnn_answer(key, description_of(kH100)).refusal, "");
}

}  // namespace
}  // namespace lockstep::test
