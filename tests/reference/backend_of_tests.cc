#include "tests/reference/backend_of_tests.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/cuda/load.h"
#include "runtime/base/error.h"
#include "runtime/cpu/backend.h"

namespace lockstep::testing {

std::unique_ptr<exec::Backend> make_backend_of_tests() {
  const char* const device = std::getenv("LOCKSTEP_DEVICE");
  if (device == nullptr || device != std::string_view("cuda")) return cpu::make_backend();
  std::string why_not;
  const cuda::Plugin* const plugin = launcher::load_cuda_plugin(why_not);
  LOCKSTEP_CHECK(plugin != nullptr, "{} ", why_not);
  return plugin->make_device({})->make_backend({});
}

}  // namespace lockstep::testing
