// The stand-ins for cuBLASLt and cuDNN's attention find the mistakes that they are there to find:
// operands and workspaces that are not aligned, algorithms and plans of other products, plans made
// while work is captured, results left in a workspace.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "tests/fibers/host_stream.h"

namespace lockstep::fibers {
namespace {

constexpr uint64_t kSide = 4;  // of the matrices
constexpr size_t kWorkspace = 1024;

class Libraries : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&square_, CUDA_R_32F, kSide, kSide, kSide);
    cublasLtMatrixLayoutCreate(&column_, CUDA_R_32F, kSide, 1, kSide);
  }
  void TearDown() override {
    unsetenv("FAKE_CUBLASLT_REFUSES");
    cublasLtMatrixLayoutDestroy(square_);
    cublasLtMatrixLayoutDestroy(column_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
    cudaStreamDestroy(stream_);
  }
  cublasStatus_t find(cublasLtMatrixLayout_t out) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(
        handle_, description_, square_, square_, out, out, nullptr, 1, &result_, &found);
  }
  cublasStatus_t multiply(const void* a,
                          const cublasLtMatmulAlgo_t* algorithm,
                          cublasLtMatrixLayout_t out) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_,
                          description_,
                          &one,
                          a,
                          square_,
                          numbers_,
                          out,
                          &zero,
                          out_,
                          out,
                          out_,
                          out,
                          algorithm,
                          workspace_,
                          kWorkspace,
                          stream_);
  }

  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t square_ = nullptr, column_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_{};
  alignas(16) float numbers_[kSide * kSide] = {1, 2, 3, 4};
  alignas(16) float out_[kSide * kSide] = {};
  alignas(16) unsigned char workspace_[kWorkspace] = {};
};

TEST_F(Libraries, AProductNeedsTheAlgorithmThatWasFoundForIt) {
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_, &result_.algo, square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_, &result_.algo, column_), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(numbers_, nullptr, square_), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(Libraries, OperandsAreAligned) {
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_ + 1, &result_.algo, square_), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(Libraries, NothingLastsInAWorkspace) {
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(multiply(numbers_, &result_.algo, square_), CUBLAS_STATUS_SUCCESS);
  drain();
  EXPECT_EQ(workspace_[0], 0xff);
}

TEST_F(Libraries, AlgorithmsAreNotLookedForWhileWorkIsCaptured) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_NE(find(square_), CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST_F(Libraries, WhatTheEnvironmentNamesIsRefused) {
  const auto refused = [&](const char* words, cublasLtMatrixLayout_t out) {
    setenv("FAKE_CUBLASLT_REFUSES", words, 1);
    return find(out) == CUBLAS_STATUS_NOT_SUPPORTED;
  };
  EXPECT_TRUE(refused("all", square_));
  EXPECT_TRUE(refused("4x4", square_));
  EXPECT_FALSE(refused("one", square_));
  EXPECT_TRUE(refused("one", column_));
  EXPECT_FALSE(refused("DGELU,BGRADB", square_));
  EXPECT_TRUE(refused("DGELU,DEFAULT", square_));
}

using AttentionDeathTest = Libraries;

// Samples, tokens, heads, size of a head.
constexpr AttentionShape kAligned = {2, 4, 1, 8, true}, kOdd = {2, 3, 1, 8, true},
                         kOneSample = {1, 4, 1, 8, true};

TEST_F(AttentionDeathTest, AShapeWhoseWorkspaceIsNotAlignedIsNotSupported) {
  cuda::CudnnAttention attention(stream_);
  EXPECT_TRUE(attention.supports(kAligned, DType::kBF16));
  EXPECT_FALSE(attention.supports(kOdd, DType::kBF16));
  EXPECT_FALSE(attention.supports(kOneSample, DType::kBF16));
  std::string why_not;
  EXPECT_FALSE(cuda::fits_cudnn_workspace(kOneSample, 91500, why_not));
  EXPECT_TRUE(cuda::fits_cudnn_workspace(kOneSample, 91600, why_not));
}

TEST_F(AttentionDeathTest, PlansArrayAndWorkspaceAreHeldToTheContract) {
  alignas(16) static std::byte arrays[4096];
  std::vector<std::byte> bytes(
      cuda::cudnn_attention_workspace_bytes({kAligned, DType::kBF16, true}) + 32);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  std::byte* const workspace = bytes.data() + (16 - address % 16) % 16;
  const cuda::CudnnAttentionKey key{kAligned, DType::kBF16, true};
  const auto run = [&](std::byte* array, std::byte* scratch, bool planned) {
    cuda::CudnnAttention attention(stream_);
    if (planned) attention.supports(kAligned, DType::kBF16);
    attention.run(key,
                  {.qkv = array,
                   .out = arrays,
                   .log_sum_exp = reinterpret_cast<float*>(arrays),
                   .d_out = arrays,
                   .d_qkv = arrays},
                  scratch);
    drain();
  };
  run(arrays, workspace, true);
  EXPECT_DEATH(run(arrays + 2, workspace, true), "aligned");
  EXPECT_DEATH(run(arrays, workspace + 4, true), "workspace");
  EXPECT_DEATH(run(arrays, workspace, false), "");
}

}  // namespace
}  // namespace lockstep::fibers
