// The kernels for CUDA, and the calls of its libraries, on the host: see tests/fibers.
#include <gtest/gtest.h>

#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/planned_ops.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/order.h"
#include "tests/ops/devices.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::test {
namespace {

// One GPU, as a backend has it.
struct HostGpu {
  cuda::LaunchContext context() {
    return {.stream = &stream,
            .matmul = &matmul,
            .cudnn_attention = &attention,
            .cudnn_conv2d = &conv2d,
            .multiprocessors = 3};
  }

  CUstream_st stream;
  alignas(256) std::byte workspace[cuda::Matmul::kWorkspaceBytes];
  cuda::Matmul matmul{&stream, workspace};
  cuda::CudnnAttention attention{&stream};
  cuda::CudnnConv2d conv2d{&stream};
};

HostGpu& host_gpu() {
  static HostGpu gpu;
  return gpu;
}

bool is_available(const exec::Implementation& implementation,
                  const graph::Graph& graph,
                  const graph::Op& op) {
  cuda::LaunchContext context = host_gpu().context();
  return implementation.available(graph::OpCall(graph, op, &context));
}

void run(const exec::Implementation& implementation,
         const graph::Graph& graph,
         const graph::Op& op,
         std::byte* const* tensors,
         std::byte* workspace,
         const graph::LaneContext& lane) {
  cuda::LaunchContext context = host_gpu().context();
  context.lane = &lane;
  implementation.run(graph::OpCall(graph, op, tensors, workspace, lane, &context));
  fibers::drain();
}

void check_planned(const OpTest& test,
                   const graph::Graph& graph,
                   const graph::Op& op,
                   const std::string& where) {
  SCOPED_TRACE(where + ": " + graph::name_of(op.kind));
  const exec::OpSet& planned = cuda::planned_ops();
  exec::OpSet made = planned;
  made.implementations = {&test.cuda, 1};
  ASSERT_EQ(planned.supports(graph, op), made.supports(graph, op));
  if (made.supports(graph, op)) {
    EXPECT_EQ(planned.op_workspace_bytes(graph, op), made.op_workspace_bytes(graph, op));
  }
}

// blocks_down: that a grid has in its second dimension.
Way in_order(std::string name, fibers::Order order, unsigned blocks_down) {
  return {"blocks and threads in " + name + " order", [=](const std::function<void()>& f) {
            fibers::order = order;
            fibers::max_blocks_down = blocks_down;
            f();
            fibers::order = fibers::Order::kEach;
            fibers::max_blocks_down = fibers::kMaxBlocksDown;
          }};
}

}  // namespace

std::vector<OpDevice> cuda_devices() {
  constexpr unsigned kFewBlocksDown = 2;  // so that grids go on in their third dimension
  std::vector<DType> types = {DType::kF32, DType::kBF16, DType::kF16};
  std::vector<Way> ways = {in_order("forward", fibers::Order::kForward, fibers::kMaxBlocksDown),
                           in_order("reverse", fibers::Order::kReverse, fibers::kMaxBlocksDown),
                           in_order("shuffled", fibers::Order::kShuffled, kFewBlocksDown)};
  if (sanitized()) {  // all types and orders are tested without sanitizers
    types.pop_back();
    ways.erase(ways.begin(), ways.end() - 1);
  }
  return {{.name = "cuda on the host",
           .implementations = [](const OpTest& test) { return test.cuda; },
           .types = std::move(types),
           .ways = std::move(ways),
           .available = is_available,
           .run = run,
           .check_planned = check_planned}};
}

}  // namespace lockstep::test
