#include "launcher/cuda/nccl_options.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "collectives/agree/agreement.h"
#include "runtime/base/error.h"

namespace lockstep::cuda {
namespace {

// Rank 0's setting: NCCL needs the same one on all ranks, and the environment may not reach other
// hosts.
bool between_graphs(collectives::Communicator& control) {
  constexpr const char* kName = "LOCKSTEP_NCCL_BETWEEN_GRAPHS";
  std::string value;
  collectives::run_on_root(control, [&] {
    const char* const text = std::getenv(kName);
    value = text == nullptr ? "0" : text;
    if (value != "0" && value != "1")
      throw ConfigError("{}: value is '{}'; allowed: 0 and 1", kName, value);
  });
  return collectives::broadcast_text(control, value) == "1";
}

}  // namespace

collectives::NcclOptions nccl_options(collectives::Communicator& control,
                                      CudaBackend& backend,
                                      const GpuRequest& request,
                                      const exec::ConnectRequest& waiting,
                                      const OperationMarks& marks) {
  collectives::NcclOptions options{
      request.init_timeout_s, waiting.first_timeout_s, waiting.timeout_s, request.share_gpu};
  options.mark = [&marks](CUstream_st* stream, uint64_t label) { marks.mark(stream, label); };
  options.reached = marks.word();
  options.waited = waiting.waited;
  options.watch = [&control, waiting] {
    waiting.while_waiting();
    control.check();
  };
  if (between_graphs(control))
    options.outside = [&backend](std::function<void()> work) {
      backend.outside_graphs(std::move(work));
    };
  return options;
}

}  // namespace lockstep::cuda
