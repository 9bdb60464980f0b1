// The kernels for CUDA on the host: see tests/fibers.
#include "runtime/cuda/context.h"
#include "tests/fibers/order.h"
#include "tests/ops/devices.h"

namespace lockstep::test {

std::vector<OpDevice> cuda_devices() {
  const auto in_order = [](std::string name, fibers::Order order) {
    return Way{"threads in " + name + " order", [order](const std::function<void()>& f) {
                 fibers::order = order;
                 f();
                 fibers::order = fibers::Order::kForward;
               }};
  };
  return {{.name = "cuda on the host",
           .implementations = [](const OpTest& test) { return test.cuda; },
           .types = {DType::kF32, DType::kBF16, DType::kF16},
           .ways = {in_order("forward", fibers::Order::kForward),
                    in_order("reverse", fibers::Order::kReverse),
                    in_order("shuffled", fibers::Order::kShuffled)},
           .run =
               [](const Implementation& implementation,
                  const Graph& graph,
                  const Op& op,
                  std::byte* const* tensors,
                  std::byte* workspace,
                  const LaneContext& lane) {
                 cuda::LaunchContext context{.lane = &lane};
                 implementation.run(OpCall(graph, op, tensors, workspace, lane, &context));
               }}};
}

}  // namespace lockstep::test
