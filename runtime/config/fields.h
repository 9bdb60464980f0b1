#pragma once
// The list of all fields of the configuration with their limits.

#include "runtime/config/field_visitor.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// Visits every field of `config` and of the sections below it, in schema order.
void visit_fields(FieldVisitor& visitor, RunConfig& config);

}  // namespace lockstep
