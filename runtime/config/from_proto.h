#pragma once

#include "runtime/config/run_config.h"
#include "runtime/config/run_config.pb.h"

namespace lockstep {

// The structs that `message` describes: fields that it does not set keep the defaults of
// run_config.h. Throws ConfigError for a value outside its own limit, for a field that is set where
// it does not apply, and for a missing model, data source or optimizer; relations between fields
// are left to validate().
RunConfig from_proto(const proto::RunConfig& message);

}  // namespace lockstep
