// Asks cuDNN itself, without a GPU, whether the graphs of attention can run: it takes descriptions
// of GPUs and a library that stands in for the driver (driver_for_cudnn.cc), refuses what it does
// not support, and builds the plans of the rest. tests/gpu/cudnn_table.py asks about every network.
// Catches: a graph that would first be refused on a user's GPU, or whose plan needs more workspace
// than is reserved.

#include "runtime/cuda/cudnn/cudnn_attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "models/small_models.h"
#include "runtime/cuda/plan/attention.h"
#include "runtime/graph/builder.h"
#include "tests/cuda/described_gpus.h"

namespace lockstep::test {
namespace {

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
            EXPECT_EQ(cuda::cudnn_answer(key, description_of(gpu)).refusal, "")
                << gpu.name << ", " << lockstep::name_of(dtype) << ", heads of " << head_size
                << (causal ? ", causal" : ", full") << (backward ? ", backward" : ", forward");
          }
        }
      }
    }
  }
}

// Windows, on both sides too, and padding.
TEST_F(CudnnAttentionTest, TakesMasksOnEveryGpu) {
  struct Mask {
    bool causal;
    int64_t window;
    bool padded;
  };
  for (const GpuKind& gpu : {kH100, kA100, kL40s, kRtx4090, kB200, kRtx5090}) {
    for (const Mask& mask :
         {Mask{true, 256, false}, {false, 1, false}, {false, 0, true}, {true, 40, true}}) {
      for (const bool backward : {false, true}) {
        const graph::AttentionShape shape = {4, 1025, 32, 64, mask.causal, 8, mask.window};
        const cuda::CudnnAttentionKey key = {shape, DType::kBF16, backward, mask.padded};
        EXPECT_EQ(cuda::cudnn_answer(key, description_of(gpu)).refusal, "")
            << gpu.name << (mask.causal ? ", causal" : ", full") << ", window " << mask.window
            << (mask.padded ? ", padded" : "") << (backward ? ", backward" : ", forward");
      }
    }
  }
}

// The plan of one pass takes at most the planned workspace, and at least that less `spare` bytes.
void expect_built(const cuda::CudnnAttentionKey& key, const GpuKind& gpu, size_t spare) {
  const cuda::CudnnAnswer answer = cuda::cudnn_answer(key, description_of(gpu), {.build = true});
  const size_t planned = cuda::cudnn_attention_workspace_bytes(key);
  const graph::AttentionShape& s = key.shape;
  SCOPED_TRACE(std::string(gpu.name) + ", " + std::to_string(s.batch) + " x " +
               std::to_string(s.time) + ", " + std::to_string(s.heads) + " heads of " +
               std::to_string(s.head_size) + (key.backward ? ", backward" : ", forward"));
  ASSERT_EQ(answer.refusal, "");
  EXPECT_LE(static_cast<size_t>(answer.workspace_bytes), planned);
  EXPECT_GE(static_cast<size_t>(answer.workspace_bytes) + spare, planned);
}

constexpr size_t kSlack = size_t{1} << 20;

// The sizes of GPT-2, and odd and long sequences in parts. Hopper asks for all that is planned.
TEST_F(CudnnAttentionTest, FitsInItsWorkspace) {
  for (graph::AttentionShape shape : {graph::AttentionShape{16, 1024, 12, 64, true},
                                      graph::AttentionShape{3, 1000, 16, 128, true},
                                      graph::AttentionShape{2, 65, 3, 32, false},
                                      graph::AttentionShape{4, 8192, 12, 64, true},
                                      graph::AttentionShape{4, 1024, 32, 64, true, 8},
                                      graph::AttentionShape{2, 1000, 16, 128, true, 1}}) {
    shape.batch = cuda::cudnn_backward_batch(shape);
    expect_built({shape, DType::kBF16, false}, kH100, kSlack);
    expect_built({shape, DType::kBF16, true}, kH100, kSlack);
  }
  // Masks take no more.
  const graph::AttentionShape masked = {2, 65, 6, 32, true, 2, 20};
  expect_built({masked, DType::kBF16, false, /*padded=*/true}, kH100, kSlack);
  expect_built({masked, DType::kBF16, true, /*padded=*/true}, kH100, kSlack);
}

// Blackwell asks for no gradient of the scores, but for floats if heads share keys. Short samples
// with large heads are the worst case.
TEST_F(CudnnAttentionTest, FitsInItsWorkspaceOnEveryGpu) {
  constexpr size_t kAny = std::numeric_limits<size_t>::max() / 2;
  for (const GpuKind& gpu : kGpus) {
    expect_built({{4, 1024, 12, 64, true}, DType::kBF16, false}, gpu, kSlack);
    expect_built({{2, 1000, 16, 128, true, 2}, DType::kBF16, true}, gpu, kAny);
  }
  for (const GpuKind& gpu : {kB200, kA100})
    expect_built({{32, 128, 32, 128, true, 8}, DType::kBF16, true}, gpu, kAny);
}

// What the runtime knows of cuDNN's limits on the backward pass is what cuDNN answers.
TEST_F(CudnnAttentionTest, RefusesTheBackwardPassesThatTheRuntimeKnows) {
  const int version = std::stoi(cuda::cudnn_version());
  for (const GpuKind& gpu : kGpus) {
    for (const int64_t head_size : {64, 128, 136, 192, 256}) {
      const graph::AttentionShape shape = {2, 256, 4, head_size, true};
      const std::string limit = cuda::cudnn_backward_limit(shape, gpu.sm, version);
      const std::string refusal =
          cuda::cudnn_answer(cuda::CudnnAttentionKey{shape, DType::kBF16, true},
                             description_of(gpu))
              .refusal;
      EXPECT_EQ(limit.empty(), refusal.empty())
          << gpu.name << ", heads of " << head_size << ": " << limit << refusal;
    }
  }
}

// Every GPU has a forward pass of all heads that are multiples of 8, and of no others.
TEST_F(CudnnAttentionTest, TakesHeadsOfMultiplesOf8) {
  for (const GpuKind& gpu : kGpus) {
    for (const int64_t head_size : {4, 8, 20, 100, 136, 264}) {
      const graph::AttentionShape shape = {2, 256, 4, head_size, true};
      const std::string limit = cuda::cudnn_head_limit(shape);
      const std::string refusal =
          cuda::cudnn_answer(cuda::CudnnAttentionKey{shape, DType::kBF16, false},
                             description_of(gpu))
              .refusal;
      EXPECT_EQ(limit.empty(), refusal.empty())
          << gpu.name << ", heads of " << head_size << ": " << limit << refusal;
    }
  }
}

TEST(CudnnBackwardLimit, NamesTheVersionThatIsNeeded) {
  const graph::AttentionShape shape = {4, 1024, 12, 64, true};
  EXPECT_EQ(
      cuda::cudnn_backward_limit(shape, 100, 90501),
      "a known limit, cuDNN 9.5.1 has no backward pass of attention with a fixed order of sums "
      "for GPUs of compute capability 10.0; install cuDNN 9.18.0 or newer");
  EXPECT_EQ(cuda::cudnn_backward_limit(shape, 100, 91800), "");
  EXPECT_EQ(cuda::cudnn_backward_limit(shape, 90, 90501), "");
  const graph::AttentionShape large = {4, 1024, 12, 256, true};
  EXPECT_EQ(cuda::cudnn_backward_limit(large, 80, 91900),
            "a known limit, cuDNN 9.19.0 has no backward pass of attention with heads of 256 for "
            "GPUs of compute capability 8.0");
  EXPECT_EQ(cuda::cudnn_backward_limit(large, 90, 91900), "");
}

TEST(CudnnAttentionParts, LongSequencesGoThroughInPartsThatDivideTheBatch) {
  EXPECT_EQ(cuda::cudnn_backward_batch({16, 1024, 12, 64, true}), 16);
  const int64_t part = cuda::cudnn_backward_batch({12, 8192, 12, 64, true});
  EXPECT_EQ(12 % part, 0);
  EXPECT_LT(part, 12);
  EXPECT_EQ(cuda::cudnn_backward_batch({5, 65536, 12, 64, true}), 1);
}

// Every attention of the self-test: what the plan gives cuDNN it takes on every GPU, and of what
// the plan keeps from it for the size of heads it takes nothing. So a warning without the words "a
// known limit" is a surprise.
TEST_F(CudnnAttentionTest, TakesOfTheSelftestWhatThePlanSays) {
  int taken = 0, refused = 0;
  for (const models::SmallModel& small : models::small_models()) {
    graph::GraphOptions options(small.purpose);
    options.compute = DType::kBF16;
    options.lanes = small.lanes;
    const graph::Graph graph = small.build(options);
    for (const graph::Op& op : graph.ops) {
      if (op.kind != graph::OpKind::kAttention) continue;
      const graph::OpCall call(graph, op);
      const graph::AttentionShape shape = cuda::attention_shape(call);
      std::string unaligned;
      const bool padded = cuda::attention_is_padded(call);
      if (!cuda::fits_cudnn_workspace(shape, padded, std::stoi(cuda::cudnn_version()), unaligned))
        continue;
      const bool planned = cuda::cudnn_attention_supports(call);
      if (!planned && cuda::cudnn_head_limit(shape).empty()) continue;  // a mask
      (planned ? taken : refused)++;
      for (const GpuKind& gpu : kGpus) {
        std::string refusal;
        for (const bool backward : {false, true})
          refusal +=
              cuda::cudnn_answer(cuda::CudnnAttentionKey{shape, DType::kBF16, backward, padded},
                                 description_of(gpu))
                  .refusal;
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
  EXPECT_NE(cuda::cudnn_answer(key, description_of(kH100)).refusal, "");
}

}  // namespace
}  // namespace lockstep::test
