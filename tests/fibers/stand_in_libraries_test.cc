// The stand-ins for cuBLASLt and cuDNN's attention find the mistakes that they are there to find:
// operands and workspaces that are not aligned, algorithms and plans of other products, plans made
// while work is captured, results left in a workspace.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
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
    cublasLtMatmulPreferenceCreate(&preference_);
    prefer<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    for (const auto side : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer<uint32_t>(side, 16);
    cublasLtMatrixLayoutCreate(&square_, CUDA_R_32F, kSide, kSide, kSide);
    cublasLtMatrixLayoutCreate(&column_, CUDA_R_32F, kSide, 1, kSide);
  }
  void TearDown() override {
    unsetenv("FAKE_CUBLASLT_REFUSES");
    unsetenv("FAKE_GPU_CAPABILITY");
    unsetenv("FAKE_CUDNN_VERSION");
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatrixLayoutDestroy(square_);
    cublasLtMatrixLayoutDestroy(column_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
    cudaStreamDestroy(stream_);
  }
  template <typename T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  template <typename T>
  void describe(cublasLtMatmulDescAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  void use(cublasLtEpilogue_t epilogue) { describe(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue); }
  // Of a product of a square by `out`'s columns.
  cublasStatus_t find(cublasLtMatrixLayout_t out) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(
        handle_, description_, square_, out, out, out, preference_, 1, &result_, &found);
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
                          workspace_bytes_,
                          stream_);
  }

  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t square_ = nullptr, column_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_{};
  size_t workspace_bytes_ = kWorkspace;
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

TEST_F(Libraries, AlgorithmsWhoseSumsHaveNoOrderAreFoundUnlessExcluded) {
  cublasLtMatmulHeuristicResult_t results[8] = {};
  int all = 0, in_order = 0;
  const auto find_all = [&](int& found) {
    return cublasLtMatmulAlgoGetHeuristic(
        handle_, description_, square_, square_, square_, square_, preference_, 8, results, &found);
  };
  ASSERT_EQ(find_all(all), CUBLAS_STATUS_SUCCESS);
  prefer<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  ASSERT_EQ(find_all(in_order), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(in_order, all - 1);
}

TEST_F(Libraries, AnAlgorithmMadeFromAttributesIsOneThatThereIs) {
  cublasLtMatmulAlgo_t algorithm{};
  const auto init = [&](int id) {
    return cublasLtMatmulAlgoInit(handle_,
                                  CUBLAS_COMPUTE_32F,
                                  CUDA_R_32F,
                                  CUDA_R_32F,
                                  CUDA_R_32F,
                                  CUDA_R_32F,
                                  CUDA_R_32F,
                                  id,
                                  &algorithm);
  };
  const auto check = [&] {
    return cublasLtMatmulAlgoCheck(
        handle_, description_, square_, square_, square_, square_, &algorithm, &result_);
  };
  EXPECT_EQ(init(21), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(init(20), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check(), CUBLAS_STATUS_NOT_SUPPORTED);
  for (const auto& [attribute, value] :
       {std::pair{CUBLASLT_ALGO_CONFIG_TILE_ID, 18u}, {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4u}})
    cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value));
  EXPECT_EQ(check(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_, &algorithm, square_), CUBLAS_STATUS_SUCCESS);
  drain();
}

TEST_F(Libraries, OperandsAreAlignedAsThePreferenceSays) {
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_ + 1, &result_.algo, square_), CUBLAS_STATUS_INVALID_VALUE);
  prefer<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4);
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_ + 1, &result_.algo, square_), CUBLAS_STATUS_SUCCESS);
  drain();
}

TEST_F(Libraries, TheWorkspaceIsThatOfThePreference) {
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result_.workspaceSize, kWorkspace);
  workspace_bytes_ = kWorkspace - 1;
  EXPECT_EQ(multiply(numbers_, &result_.algo, square_), CUBLAS_STATUS_INVALID_VALUE);
  prefer<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  ASSERT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(numbers_, &result_.algo, square_), CUBLAS_STATUS_SUCCESS);
  drain();
  EXPECT_EQ(workspace_[0], 0);
}

// The mistake: an epilogue that has no algorithm, with the algorithm of the plain product.
TEST_F(Libraries, ARefusedEpilogueIsNotRun) {
  const auto run_anyway = [&](cublasLtEpilogue_t epilogue) {
    use(CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
    use(epilogue);
    return multiply(numbers_, &result_.algo, square_);
  };
  describe<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, numbers_);
  describe<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, out_);
  for (const int64_t aux_stride : {4, 12, 0}) {  // no multiple of 8, or less than a column
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_stride);
    for (const auto epilogue : {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
      use(epilogue);
      EXPECT_NE(find(square_), CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(run_anyway(epilogue), CUBLAS_STATUS_INVALID_VALUE);
    }
  }
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{8});
  use(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run_anyway(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), CUBLAS_STATUS_INVALID_VALUE)
      << "the algorithm of another epilogue";
  use(CUBLASLT_EPILOGUE_DRELU);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(Libraries, ABiasHasTheTypeOfTheOutput) {
  use(CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  describe<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, numbers_);
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB}) {
    use(epilogue);
    describe<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    EXPECT_EQ(find(square_), CUBLAS_STATUS_NOT_SUPPORTED);
    describe<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    EXPECT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  }
}

TEST_F(Libraries, OnlyFloatsBecomeTf32) {
  cublasLtMatmulDesc_t tf32 = nullptr;
  cublasLtMatmulDescCreate(&tf32, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F);
  std::swap(description_, tf32);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayout_t halves = nullptr;
  cublasLtMatrixLayoutCreate(&halves, CUDA_R_16BF, kSide, kSide, kSide);
  std::swap(square_, halves);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_NOT_SUPPORTED);
  std::swap(description_, tf32);
  EXPECT_EQ(find(square_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(find(halves), CUBLAS_STATUS_NOT_SUPPORTED) << "inputs of two types";
  cublasLtMatrixLayoutDestroy(halves);
  cublasLtMatmulDescDestroy(tf32);
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
constexpr graph::AttentionShape kAligned = {2, 4, 1, 8, true}, kOdd = {2, 3, 1, 8, true},
                                kOneSample = {1, 4, 1, 8, true};

TEST_F(AttentionDeathTest, AShapeWhoseWorkspaceIsNotAlignedIsNotSupported) {
  cuda::CudnnAttention attention(stream_);
  EXPECT_TRUE(attention.supports(kAligned, DType::kBF16));
  EXPECT_FALSE(attention.supports(kOdd, DType::kBF16));
  EXPECT_FALSE(attention.supports(kOneSample, DType::kBF16));
  std::string why_not;
  EXPECT_FALSE(cuda::fits_cudnn_workspace(kOneSample, false, 91500, why_not));
  EXPECT_TRUE(cuda::fits_cudnn_workspace(kOneSample, false, 91600, why_not));
}

TEST_F(AttentionDeathTest, HeadsAreAsLargeAsTheGpuAllows) {
  const auto supports = [&](int64_t head_size, const char* capability, const char* version) {
    setenv("FAKE_GPU_CAPABILITY", capability, 1);
    setenv("FAKE_CUDNN_VERSION", version, 1);
    cuda::CudnnAttention attention(stream_);
    return attention.supports({2, 4, 1, head_size, true}, DType::kBF16);
  };
  for (const char* const capability : {"80", "89", "90", "100", "120"}) {
    const bool hopper = std::string(capability) == "90";
    EXPECT_TRUE(supports(128, capability, "91900"));
    EXPECT_FALSE(supports(124, capability, "91900"));
    EXPECT_EQ(supports(256, capability, "91900"), hopper);
    EXPECT_FALSE(supports(264, capability, "91900"));
  }
  EXPECT_FALSE(supports(64, "100", "91700")) << "no order of the backward pass's sums";
  EXPECT_TRUE(supports(64, "100", "91800"));
}

TEST_F(AttentionDeathTest, WindowsOnBothSidesNeedCudnn9_10_2) {
  const auto supports = [&](bool causal, const char* version) {
    setenv("FAKE_CUDNN_VERSION", version, 1);
    cuda::CudnnAttention attention(stream_);
    graph::AttentionShape shape = kAligned;
    shape.causal = causal;
    shape.window = 2;
    return attention.supports(shape, DType::kBF16);
  };
  EXPECT_TRUE(supports(true, "90000"));
  EXPECT_FALSE(supports(false, "90000"));
  EXPECT_TRUE(supports(false, "91002"));
}

// The rows of padding are spoilt, so that callers who forget them are found, and so is what the
// backward pass multiplies by zero.
TEST_F(AttentionDeathTest, LeavesPaddingUndefined) {
  constexpr graph::AttentionShape kShape = {2, 2, 1, 8, false};
  alignas(16) static BFloat16 qkv[2 * 2 * 24], out[2 * 2 * 8], d_out[2 * 2 * 8], d_qkv[2 * 2 * 24];
  alignas(16) static float log_sum_exp[4];
  alignas(16) static int32_t lengths[4] = {2, 1};
  setenv("FAKE_CUDNN_VERSION", "91900", 1);
  cuda::CudnnAttention attention(stream_);
  ASSERT_TRUE(attention.supports(kShape, DType::kBF16, /*padded=*/true));
  std::vector<std::byte> scratch(
      cuda::cudnn_attention_workspace_bytes({kShape, DType::kBF16, true, true}) + 32);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  const auto run = [&](bool backward, const int32_t* given) {
    attention.run({kShape, DType::kBF16, backward, true},
                  {.qkv = qkv,
                   .out = out,
                   .log_sum_exp = log_sum_exp,
                   .d_out = backward ? d_out : nullptr,
                   .d_qkv = backward ? d_qkv : nullptr,
                   .query_lengths = given,
                   .key_lengths = given},
                  scratch.data() + (16 - address % 16) % 16);
    drain();
  };
  run(false, lengths);
  EXPECT_FALSE(std::isnan(to_float(out[16])));
  EXPECT_TRUE(std::isnan(to_float(out[24])));
  EXPECT_TRUE(std::isnan(log_sum_exp[3]));
  run(true, lengths);
  EXPECT_TRUE(std::isnan(to_float(d_qkv[56]))) << "the spoilt row of out counts";
  std::fill_n(out + 24, 8, BFloat16{});
  run(true, lengths);
  EXPECT_FALSE(std::isnan(to_float(d_qkv[56])));
  EXPECT_TRUE(std::isnan(to_float(d_qkv[72])));
  lengths[1] = 0;
  EXPECT_DEATH(run(false, lengths), "a sample of 0 tokens");
  EXPECT_DEATH(run(false, nullptr), "padded");
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
  EXPECT_DEATH(run(arrays, workspace, false), "cuDNN has no plan");
}

}  // namespace
}  // namespace lockstep::fibers
