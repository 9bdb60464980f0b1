// The file of execution.tune. Catches: a field of a request that its text leaves out, so that two
// requests would share an algorithm; a file that is not read as it was written.

#include "runtime/cuda/algorithm_choices.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "runtime/cuda/algorithm_requests.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/matmul/matmul.h"

namespace lockstep::cuda {
namespace {

const AlgorithmChoices::Facts kFacts = {{"gpu", "NVIDIA H100 80GB HBM3"}, {"cublaslt", "130100"}};

Product product() { return {.m = 4, .n = 8, .k = 16, .batch = 2}; }

CudnnConv2dKey convolution() {
  return {.shape = {.batch = 2,
                    .height = 9,
                    .width = 9,
                    .channels = 8,
                    .outputs = 8,
                    .kernel_h = 3,
                    .kernel_w = 3},
          .dtype = DType::kBF16,
          .tf32 = false,
          .pass = Conv2dPass::kForward};
}

TEST(AlgorithmChoices, EveryFieldOfARequestIsInItsText) {
  std::set<std::string> texts = {request_of(product()), request_of(convolution())};
  size_t requests = texts.size();
  const auto add = [&](auto request, auto change) {
    change(request);
    texts.insert(request_of(request));
    ++requests;
  };
  for (const auto field : {&Product::m,
                           &Product::n,
                           &Product::k,
                           &Product::stride_a,
                           &Product::stride_b,
                           &Product::stride_out,
                           &Product::batch,
                           &Product::batch_a,
                           &Product::batch_b,
                           &Product::batch_out})
    add(product(), [&](Product& p) { p.*field = 64; });
  for (const auto field :
       {&Product::transpose_a, &Product::transpose_b, &Product::accumulate, &Product::tf32})
    add(product(), [&](Product& p) { p.*field = true; });
  add(product(), [](Product& p) { p.in = DType::kBF16; });
  add(product(), [](Product& p) { p.out = DType::kBF16; });
  for (int i = 1; i <= static_cast<int>(Epilogue::kBiasGradient); ++i)
    add(product(), [&](Product& p) { p.epilogue = static_cast<Epilogue>(i); });

  using Shape = graph::Conv2dShape;
  for (const auto field : {&Shape::batch,
                           &Shape::height,
                           &Shape::width,
                           &Shape::channels,
                           &Shape::outputs,
                           &Shape::kernel_h,
                           &Shape::kernel_w,
                           &Shape::stride_h,
                           &Shape::stride_w,
                           &Shape::pad_h,
                           &Shape::pad_w,
                           &Shape::dilation_h,
                           &Shape::dilation_w,
                           &Shape::groups})
    add(convolution(), [&](CudnnConv2dKey& key) { key.shape.*field = 4; });
  for (const auto field :
       {&CudnnConv2dKey::tf32, &CudnnConv2dKey::bias, &CudnnConv2dKey::relu, &CudnnConv2dKey::wide})
    add(convolution(), [&](CudnnConv2dKey& key) { key.*field = true; });
  add(convolution(), [](CudnnConv2dKey& key) { key.dtype = DType::kF16; });
  add(convolution(), [](CudnnConv2dKey& key) { key.pass = Conv2dPass::kBackwardInput; });
  add(convolution(), [](CudnnConv2dKey& key) { key.pass = Conv2dPass::kBackwardWeight; });
  EXPECT_EQ(texts.size(), requests);
}

TEST(AlgorithmChoices, AFileIsReadAsItWasWritten) {
  AlgorithmChoices written(kFacts);
  written.add(request_of(product()), {"id=1 tile=2", "0.1 ms"});
  written.add(request_of(convolution()), {"eng6_k24=26"});
  const AlgorithmChoices read("file", written.text(), kFacts);
  EXPECT_EQ(read.at(request_of(product())).algorithm, "id=1 tile=2");
  EXPECT_EQ(read.at(request_of(convolution())).algorithm, "eng6_k24=26");
  Product other = product();
  other.k = 32;
  EXPECT_THROW(read.at(request_of(other)), ConfigError);
  EXPECT_THROW(AlgorithmChoices("file", written.text() + "product m=1 -> id=1\n", kFacts),
               ConfigError);
  EXPECT_THROW(AlgorithmChoices("file", written.text(), {{"gpu", "another"}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::cuda
