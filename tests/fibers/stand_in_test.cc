// The stand-in for CUDA finds the mistakes that it is there to find: an order that no event makes,
// calls that a capture does not allow, work that has failed.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/fibers/host_stream.h"

namespace lockstep::fibers {
namespace {

constexpr unsigned kOrders = 50;

class StandIn : public ::testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&one_, &two_})
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    use_order({});
    cudaEventDestroy(event_);
    cudaStreamDestroy(one_);
    cudaStreamDestroy(two_);
  }
  // What `value_` is in the end, in each of many orders, after `queue` has queued its work.
  template <typename Queue>
  std::set<int> ends(Queue queue) {
    std::set<int> values;
    for (unsigned seed = 0; seed < kOrders; ++seed) {
      use_order(seed);
      value_ = 0;
      queue();
      drain();
      values.insert(value_);
    }
    return values;
  }
  void set(cudaStream_t stream, int value) {
    enqueue(stream, [this, value] { value_ = value; });
  }
  cudaError_t begin() { return cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal); }
  // The result of the end of a capture; what was captured is let go.
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(one_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return error;
  }

  cudaStream_t one_ = nullptr, two_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int value_ = 0;
};

TEST_F(StandIn, StreamsHaveNoOrderButThatOfEvents) {
  EXPECT_EQ(ends([&] {
              set(one_, 1);
              set(two_, 2);
            }),
            (std::set{1, 2}));
  EXPECT_EQ(ends([&] {
              set(one_, 1);
              cudaEventRecord(event_, one_);
              cudaStreamWaitEvent(two_, event_, 0);
              set(two_, 2);
            }),
            (std::set{2}));
  EXPECT_EQ(ends([&] {
              set(one_, 1);
              set(one_, 2);
            }),
            (std::set{2}));
}

TEST_F(StandIn, NorHaveTheyWithinAGraph) {
  const auto capture = [&](bool joined_late) {
    cudaEvent_t fork = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(begin(), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(fork, one_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(two_, fork, 0), cudaSuccess);
    set(two_, 2);
    cudaEventRecord(event_, two_);
    if (!joined_late) cudaStreamWaitEvent(one_, event_, 0);
    set(one_, 1);
    if (joined_late) cudaStreamWaitEvent(one_, event_, 0);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
    cudaGraphExec_t replay = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&replay, graph, cudaGraphInstantiateFlagUseNodePriority),
              cudaSuccess);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    return replay;
  };
  for (const bool joined_late : {false, true}) {
    const cudaGraphExec_t replay = capture(joined_late);
    EXPECT_EQ(ends([&] { cudaGraphLaunch(replay, one_); }),
              joined_late ? (std::set{1, 2}) : (std::set{1}));
    EXPECT_EQ(ends([&] {
                cudaGraphLaunch(replay, one_);
                set(one_, 3);
              }),
              (std::set{3}))
        << "what follows a graph in its stream comes after all of it";
    cudaGraphExecDestroy(replay);
  }
}

TEST_F(StandIn, WorkGoesOnOnlyWhenTheHostAsks) {
  set(one_, 1);
  set(one_, 2);
  EXPECT_EQ(value_, 0);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady);
  EXPECT_EQ(value_, 1);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(one_), cudaSuccess);
  EXPECT_EQ(value_, 2);
}

TEST_F(StandIn, ACaptureEndsWithWhatItDoesNotAllow) {
  void* memory = nullptr;
  const auto broken_by = [&](auto call, cudaError_t expected) {
    ASSERT_EQ(begin(), cudaSuccess);
    set(one_, 1);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  };
  broken_by([&] { return cudaMalloc(&memory, 64); }, cudaErrorStreamCaptureUnsupported);
  broken_by([&] { return cudaMallocHost(&memory, 64); }, cudaErrorStreamCaptureUnsupported);
  broken_by([&] { return cudaStreamSynchronize(one_); }, cudaErrorStreamCaptureUnsupported);
  broken_by([&] { return cudaStreamQuery(two_); }, cudaErrorStreamCaptureUnsupported);
  broken_by([&] { return cudaEventQuery(event_); }, cudaErrorStreamCaptureUnsupported);
  cudaEventRecord(event_, two_);
  broken_by([&] { return cudaStreamWaitEvent(one_, event_, 0); }, cudaErrorStreamCaptureIsolation);
}

TEST_F(StandIn, ACaptureMustBeJoined) {
  ASSERT_EQ(begin(), cudaSuccess);
  cudaEventRecord(event_, one_);
  cudaStreamWaitEvent(two_, event_, 0);
  set(two_, 1);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}

TEST_F(StandIn, EventsOfACaptureTellNothingOutside) {
  ASSERT_EQ(begin(), cudaSuccess);
  set(one_, 1);
  cudaEventRecord(event_, one_);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaErrorCapturedEvent);
}

TEST_F(StandIn, GraphsAreToKeepPriorities) {
  ASSERT_EQ(begin(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  cudaGraphExec_t replay = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaErrorInvalidValue);
  cudaGraphDestroy(graph);
}

TEST_F(StandIn, NothingIsNotPinned) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMallocHost(&memory, 0), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace lockstep::fibers
