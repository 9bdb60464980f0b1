#include "launcher/cuda/plugin.h"

#include "launcher/cuda/gpu.h"

extern "C" __attribute__((visibility("default"))) const lockstep::cuda::Plugin*
lockstep_cuda_plugin() {
  using namespace lockstep::cuda;
  static const Plugin plugin = {kPluginInterface,
                                lockstep::set_log_sink,
                                probe_gpus,
                                make_device,
                                find_links,
                                library_versions,
                                read_condition,
                                time_copy};
  return &plugin;
}
