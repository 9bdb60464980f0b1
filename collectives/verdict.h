#pragma once
// What the watchdog of this process has found. Whoever waits for other ranks asks for it meanwhile.

#include <string>

namespace lockstep {

// The first one counts. From any thread.
void set_verdict(const std::string& text);

bool has_verdict();

// Throws CommError with it, where there is one. Cheap.
void check_verdict();

// The same after waiting up to so long for one: of what a library calls an error the watchdog may
// know the reason.
void await_verdict(double seconds);

}  // namespace lockstep
