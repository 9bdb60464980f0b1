#pragma once
// The error that this process's watchdog has found. Everything that waits for other ranks checks
// it.

#include <string>

namespace lockstep::collectives {

// Keeps only the first text. May be called from any thread.
void set_watchdog_error(const std::string& text);

bool has_watchdog_error();

// Throws CommError with the watchdog's text if there is one. Cheap.
void throw_watchdog_error();

// The same, after waiting up to `seconds` for one: the watchdog may know the cause of an error that
// a library reports.
void await_watchdog_error(double seconds);

}  // namespace lockstep::collectives
