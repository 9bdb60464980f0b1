#include "launcher/cuda/load.h"

#include <dlfcn.h>

#include <filesystem>

#include "runtime/base/host.h"
#include "runtime/base/log.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kFile = "liblockstep_cuda.so";

std::filesystem::path find_plugin() {
  std::error_code error;
  const std::filesystem::path program = program_path().parent_path();
  for (const auto& folder : {program, program / "../lib/lockstep"}) {
    if (std::filesystem::exists(folder / kFile, error)) return folder / kFile;
  }
  return {};
}

const cuda::Plugin* load(std::string& why_not) {
  const std::filesystem::path file = find_plugin();
  if (file.empty()) {
    why_not = fmt::format(
        "this program was built without its CUDA library, {}, which a build makes if nvcc is on "
        "the PATH",
        kFile);
    return nullptr;
  }
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = ::dlerror();
    why_not =
        fmt::format("CUDA's libraries are not found ({}); put their folders on LD_LIBRARY_PATH",
                    text == nullptr ? "no text" : text);
    return nullptr;
  }
  const auto entry = reinterpret_cast<cuda::PluginEntry>(::dlsym(library, cuda::kPluginSymbol));
  const cuda::Plugin* plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || plugin->interface != cuda::kPluginInterface) {
    why_not = fmt::format("'{}' is from another build of Lockstep", file.string());
    return nullptr;
  }
  plugin->set_log_sink(log_text);
  return plugin;
}

}  // namespace

const cuda::Plugin* load_cuda_plugin(std::string& why_not) {
  static std::string reason;
  static const cuda::Plugin* plugin = load(reason);
  why_not = reason;
  return plugin;
}

}  // namespace lockstep::launcher
