#include "launcher/cuda/nccl_options.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep::cuda {
namespace {

bool between_graphs() {
  constexpr const char* kName = "LOCKSTEP_NCCL_BETWEEN_GRAPHS";
  const char* const text = std::getenv(kName);
  const std::string value = text == nullptr ? "0" : text;
  if (value != "0" && value != "1")
    throw ConfigError("{}: value is '{}'; allowed: 0 and 1", kName, value);
  return value == "1";
}

}  // namespace

NcclOptions nccl_options(Communicator& control, CudaBackend& backend, const GpuRequest& request) {
  NcclOptions options{request.init_timeout_s, request.operation_timeout_s, request.share_gpu};
  options.watch = [&control] { control.check(); };
  if (between_graphs())
    options.outside = [&backend](std::function<void()> work) {
      backend.outside_graphs(std::move(work));
    };
  return options;
}

}  // namespace lockstep::cuda
