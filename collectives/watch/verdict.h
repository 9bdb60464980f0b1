#pragma once
// What the watchdog of this process has found. Whoever waits for other ranks asks for it meanwhile.

#include <string>

namespace lockstep {

// The first one counts. From any thread.
void set_verdict(const std::string& text);

bool has_verdict();

// Throws CommError with it, where there is one. Cheap.
void check_verdict();

}  // namespace lockstep
