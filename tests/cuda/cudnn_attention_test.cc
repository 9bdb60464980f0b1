// Asks cuDNN itself, without a GPU, whether the graphs of attention can run on an H100 and an A100:
// it takes a description of the GPU and a stub of the driver (see CMakeLists.txt) and says no where
// a shape, a stride, a mask or the fixed order of the backward pass is not supported.
// Catches: a graph that would first be refused on a user's GPU.

#include "runtime/cuda/cudnn/cudnn_attention.h"

#include <gtest/gtest.h>

#include "models/small_models.h"
#include "runtime/cuda/plan/attention.h"
#include "runtime/graph/builder.h"
#include "tests/cuda/described_gpus.h"

namespace lockstep {
namespace {

using test::GpuKind;
using test::kA100;
using test::kH100;

class CudnnAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = test::why_cudnn_cannot_be_asked();
    if (!why_not.empty()) GTEST_SKIP() << "skipped: " << why_not;
  }
};

TEST_F(CudnnAttentionTest, RunsOnTheGpusOfTheTable) {
  for (const GpuKind& gpu : {kH100, kA100}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const int64_t head_size : {64, 80, 128}) {
        for (const bool causal : {true, false}) {
          for (const bool backward : {false, true}) {
            const cuda::CudnnAttentionKey key = {{4, 1024, 12, head_size, causal}, dtype, backward};
            EXPECT_EQ(cuda::cudnn_attention_refusal(key, gpu.sm, description_of(gpu)), "")
                << gpu.name << ", " << name_of(dtype) << ", heads of " << head_size
                << (causal ? ", causal" : ", full") << (backward ? ", backward" : ", forward");
          }
        }
      }
    }
  }
}

// Within the workspace that is set aside: the sizes of GPT-2, and odd and long sequences in parts.
TEST_F(CudnnAttentionTest, FitsInItsWorkspace) {
  for (const GpuKind& gpu : {kH100, kA100, test::kL40s, test::kB200, test::kRtx5090}) {
    for (AttentionShape shape : {AttentionShape{16, 1024, 12, 64, true},
                                 AttentionShape{8, 1024, 25, 64, true},
                                 AttentionShape{3, 1000, 16, 128, true},
                                 AttentionShape{2, 65, 3, 32, false},
                                 AttentionShape{4, 8192, 12, 64, true},
                                 AttentionShape{4, 1024, 32, 64, true, 8},
                                 AttentionShape{4, 4096, 32, 128, true, 8},
                                 AttentionShape{2, 1000, 16, 128, true, 1}}) {
      shape.batch = cuda::cudnn_backward_batch(shape);
      for (const bool backward : {false, true}) {
        const cuda::CudnnAttentionKey key = {shape, DType::kBF16, backward};
        EXPECT_EQ(cuda::cudnn_attention_refusal(key, gpu.sm, description_of(gpu)), "")
            << gpu.name << ", " << shape.batch << " x " << shape.time << ", heads of "
            << shape.head_size << (backward ? ", backward" : ", forward");
      }
    }
  }
}

TEST(CudnnAttentionParts, LongSequencesGoThroughInPartsThatDivideTheBatch) {
  EXPECT_EQ(cuda::cudnn_backward_batch({16, 1024, 12, 64, true}), 16);
  const int64_t part = cuda::cudnn_backward_batch({12, 8192, 12, 64, true});
  EXPECT_EQ(12 % part, 0);
  EXPECT_LT(part, 12);
  EXPECT_EQ(cuda::cudnn_backward_batch({5, 65536, 12, 64, true}), 1);
}

// Every attention of the self-test: what the plan gives cuDNN it takes on every GPU, and of what the
// plan keeps from it for the size of heads it takes nothing. So a warning without the words "a known
// limit" is a surprise.
TEST_F(CudnnAttentionTest, TakesOfTheSelftestWhatThePlanSays) {
  int taken = 0, refused = 0;
  for (const SmallModel& small : small_models()) {
    GraphOptions options(small.purpose);
    options.compute = DType::kBF16;
    options.packed = small.packed;
    options.loss_rows = small.loss_rows;
    options.lanes = small.lanes;
    const Graph graph = build_model(small.config, small.io, small.lane_batch, options);
    for (const Op& op : graph.ops) {
      if (op.kind != OpKind::kAttention) continue;
      const OpCall call(graph, op);
      const AttentionShape shape = cuda::attention_shape(call);
      std::string unaligned;
      if (!cuda::fits_cudnn_workspace(shape, std::stoi(cuda::cudnn_version()), unaligned)) continue;
      const bool planned = cuda::cudnn_attention_supports(call);
      if (!planned && cuda::cudnn_head_limit(shape).empty()) continue;  // a mask
      (planned ? taken : refused)++;
      for (const GpuKind& gpu : {kH100, kA100, test::kL40s, test::kB200, test::kRtx5090}) {
        std::string refusal;
        for (const bool backward : {false, true})
          refusal += cuda::cudnn_attention_refusal(
              {shape, DType::kBF16, backward}, gpu.sm, description_of(gpu));
        EXPECT_EQ(refusal.empty(), planned) << small.name << " on " << gpu.name << ", heads of "
                                            << shape.head_size << ": " << refusal;
      }
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

// The checks above could not fail if cuDNN said yes to everything.
TEST_F(CudnnAttentionTest, AnImpossibleShapeIsRefused) {
  const cuda::CudnnAttentionKey key = {{4, 1024, 12, 63, true}, DType::kBF16, true};
  EXPECT_NE(cuda::cudnn_attention_refusal(key, kH100.sm, description_of(kH100)), "");
}

}  // namespace
}  // namespace lockstep
