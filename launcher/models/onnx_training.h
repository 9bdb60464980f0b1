#pragma once
// What training the network of an ONNX file would involve; found without data, before anything
// runs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/onnx/bind/roles.h"
#include "runtime/config/run_config.h"

namespace lockstep::launcher {

struct OnnxTraining {
  // Why it cannot be trained as it is; if there are any, all else is empty.
  std::vector<std::string> refusals = {};
  std::vector<std::string> conditions = {};  // that fields of the config must meet
  int64_t only_batch = 0;   // samples that a lane must have; 0: it may have any number
  std::string sample = {};  // "images of 3 x 224 x 224"
  // Elements of trained parameters, and of running statistics.
  int64_t parameters = 0, statistics = 0;
  int64_t flops = 0;  // of the forward pass of a sample
  // How many ops of each kind the forward pass has: those that compute a whole layer, and generic
  // ones, which compute a part of a layer, as the file's nodes do.
  std::map<std::string, int64_t> ops = {}, generic = {};
  onnx::FileRoles roles = {};  // how it uses each initializer
};

// Does not throw for a network that cannot be trained: see refusals.
OnnxTraining training_of_onnx(const OnnxConfig& config);

}  // namespace lockstep::launcher
