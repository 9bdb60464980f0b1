#pragma once
// What commands do with their results: the file of --json, and words for the last lines.

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/ranks/session.h"
#include "runtime/base/json.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// Refuses a path that could not be written, given by the flag `flag`, before the work is done.
// "-" for --json is the standard output: from now on what the command prints there goes to the
// standard error stream, so that the JSON stands alone. Throws ConfigError.
void check_result_path(const char* flag, const std::string& path);

// Writes `json` to a path that check_result_path() has seen, or nothing if it is empty; bytes in it
// that are no UTF-8 are replaced. indent -1: on one line. Throws IoError.
void write_json(const std::string& path, const Json& json, int indent = 2);

// Rank 0 writes `result` to `path`, if not empty; all ranks learn of a failure.
void write_result(Session& session, const std::string& path, const Json& result);

// Bad records of the run's data so far: those found when it was opened, and those that each rank
// has read, summed over the ranks (several may have read the same one). Nothing where
// data.bad_records is FAIL, which lets none pass. All ranks together.
std::optional<int64_t> count_bad_records(const RunParts& parts);

// ", 3 bad records" to end a summary with; empty where there are none.
std::string words_for(const std::optional<int64_t>& bad_records);

// "0123456789abcdef".
std::string hash_text_of(uint64_t hash);

}  // namespace lockstep
