#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace lockstep::config {

// Applies one "path.to.field=value" to `message`, a RunConfig. Everything after the first '=' is
// the value. Sections on the path are created, and a path through a member of a oneof switches to
// it.
//  - text: taken literally, but quotes around all of it are left out; enum: by name in any case;
//    bool: true or false
//  - repeated field: replaced by the elements of a comma-separated list, which may be in brackets;
//    empty: no elements
//  - section: only "" or "{}", which resets it to its defaults (optimizer.adamw={})
// Throws ConfigError "--set PATH=VALUE: ..." or "PATH: value is ...; allowed: ...".
void apply_override(const std::string& assignment, google::protobuf::Message* message);

}  // namespace lockstep::config
