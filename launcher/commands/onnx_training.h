#pragma once
// What it would be to train the network of an ONNX file, found without data and before anything runs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/onnx/roles.h"
#include "runtime/config/run_config.h"

namespace lockstep {

struct OnnxTraining {
  // Why it cannot be trained as it is; if there are any, all else is empty.
  std::vector<std::string> refusals = {};
  std::vector<std::string> conditions = {};  // of fields of the config, without which it cannot be
  std::string sample = {};                   // "images of 3 x 224 x 224"
  // Elements of what an optimizer moves, and of running statistics.
  int64_t parameters = 0, statistics = 0;
  int64_t flops = 0;  // of the forward pass of a sample
  // How many ops of each kind the forward pass has: those that are made for one layer, and those that
  // do a part of one, as the file's nodes do.
  std::map<std::string, int64_t> ops = {}, generic = {};
  onnx::FileRoles roles = {};  // what it does with each initializer
};

// Throws nothing for a network that cannot be trained.
OnnxTraining training_of_onnx(const OnnxConfig& config);

}  // namespace lockstep
