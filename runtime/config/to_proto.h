#pragma once

#include "runtime/config/run_config.h"
#include "runtime/config/run_config.pb.h"

namespace lockstep {

// A message with every field of `config` set that applies to it, so that from_proto gives back an
// equal config. Does not validate.
proto::RunConfig to_proto(const RunConfig& config);

}  // namespace lockstep
