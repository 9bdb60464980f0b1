#pragma once
// The work of a planned run's network, counted from its graph as networks.h counts well-known
// networks, so that the model of tuned trainers can predict any config.
//
// This program fuses ops, and other trainers fuse others. So each op of the forward pass is taken
// apart again: a linear layer with an activation is a product and a walk, a norm of a sum is a sum
// and a norm. A walk has the passes over memory that networks.h counts for the same op.

#include <string>

#include "launcher/published/network_work.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::published {

struct PlannedWork {
  NetworkWork network;    // of a lane
  bool adapters = false;  // LoRA: only these are trained
  // What cannot be counted: "the work of recurrent is not counted"; empty if all of it is.
  std::string uncounted;
};

PlannedWork work_of(const run::PreparedRun& prepared);

}  // namespace lockstep::published
