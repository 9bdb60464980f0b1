#include "launcher/cuda/plugin.h"

#include "launcher/cuda/gpu.h"

extern "C" __attribute__((visibility("default"))) const lockstep::cuda::Plugin*
lockstep_cuda_plugin() {
  using namespace lockstep::cuda;
  static const Plugin plugin = {kPluginInterface, probe_gpus, make_device};
  return &plugin;
}
