#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "launcher/session.h"

namespace lockstep {

// Refuses a path that could not be written, given by the flag `flag`, before the work is done.
// Throws ConfigError.
void check_result_path(const char* flag, const std::string& path);

// Rank 0 writes `result` to `path`, if not empty; all ranks learn of a failure.
void write_result(Session& session, const std::string& path, const nlohmann::ordered_json& result);

// "0123456789abcdef".
std::string hash_text_of(uint64_t hash);

}  // namespace lockstep
