// The stand-in for NCCL finds a communicator that ends before the graphs that captured it, which
// NCCL answers with a hang.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "tests/fibers/host_stream.h"
#include "tests/fibers/nccl_on_host.h"

namespace lockstep::fibers {
namespace {

class StandInNcclDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { MPI_Init(nullptr, nullptr); }
  static void TearDownTestSuite() { MPI_Finalize(); }

  void SetUp() override {
    graph_wait_ms = 1;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&buffer_), 1), cudaSuccess);
    ncclUniqueId id;
    nccl_.get_unique_id(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(nccl_.comm_init_rank_config(&comm_, 1, id, 0, &config), ncclInProgress);
    settle();
  }
  void TearDown() override {
    cudaFreeHost(buffer_);
    cudaStreamDestroy(stream_);
  }
  void settle() {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) nccl_.comm_get_async_error(comm_, &state);
  }
  void gather() {
    EXPECT_EQ(nccl_.all_gather(buffer_, buffer_, 1, ncclInt8, comm_, stream_), ncclInProgress);
    settle();
  }
  cudaGraph_t capture() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    gather();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    return graph;
  }
  static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority),
              cudaSuccess);
    return exec;
  }
  void finalize_and_destroy() {
    EXPECT_EQ(nccl_.comm_finalize(comm_), ncclInProgress);
    settle();
    EXPECT_EQ(nccl_.comm_destroy(comm_), ncclSuccess);
  }

  const collectives::NcclLibrary& nccl_ = nccl_on_host();
  cudaStream_t stream_ = nullptr;
  char* buffer_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

TEST_F(StandInNcclDeathTest, ACommunicatorOutlivesTheGraphsThatCapturedIt) {
  gather();  // queued, and no graph's
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  cudaGraph_t graph = capture();
  EXPECT_DEATH(nccl_.comm_finalize(comm_), "ncclCommFinalize waits for graphs");
  EXPECT_DEATH(nccl_.comm_abort(comm_), "ncclCommAbort waits for graphs");
  cudaGraphExec_t exec = instantiate(graph);
  cudaGraphDestroy(graph);
  EXPECT_DEATH(nccl_.comm_abort(comm_), "ncclCommAbort waits for graphs");
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_DEATH(nccl_.comm_finalize(comm_), "captured 1 operations");
  cudaGraphExecDestroy(exec);
  finalize_and_destroy();
}

TEST_F(StandInNcclDeathTest, AGraphThatIsCapturedOnceItEndsIsFoundToo) {
  EXPECT_EQ(nccl_.comm_finalize(comm_), ncclInProgress);
  settle();
  cudaGraph_t graph = capture();
  EXPECT_DEATH(nccl_.comm_destroy(comm_), "ncclCommDestroy waits for graphs");
  cudaGraphDestroy(graph);
  EXPECT_EQ(nccl_.comm_destroy(comm_), ncclSuccess);
}

}  // namespace
}  // namespace lockstep::fibers
