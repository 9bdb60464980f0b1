#pragma once

#include <google/protobuf/message.h>

#include "runtime/config/run_config.h"

namespace lockstep {

// The structs that `message`, a RunConfig, describes; fields that it does not set have their
// defaults. Throws ConfigError for a value outside its own limit, for a field that is set where it
// does not apply, and for a missing model, data source, optimizer or file; relations between fields
// are left to validate().
RunConfig from_proto(const google::protobuf::Message& message);

}  // namespace lockstep
