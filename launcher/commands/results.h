#pragma once
// What commands do with their results: the --json file, and texts for the last lines.

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/ranks/session.h"
#include "runtime/base/json.h"
#include "runtime/train/run_context.h"

namespace lockstep {

// Rejects a path, given by `flag`, that could not be written, before the work is done. For --json,
// "-" is the standard output: from then on everything else that the command prints goes to standard
// error, so that the JSON stands alone. Throws ConfigError.
void require_result_path(const char* flag, const std::string& path);

// Writes `json` to a path that require_result_path() has accepted; does nothing if it is empty.
// Bytes that are not UTF-8 are replaced. indent -1: on one line. Throws IoError.
void write_json(const std::string& path, const Json& json, int indent = 2);

// Rank 0 writes `result` to `path`, if not empty. All ranks throw if it fails.
void write_result(Session& session, const std::string& path, const Json& result);

// The number of bad records in the run's data so far: those found when it was opened and those that
// each rank has read, summed over the ranks (several may have read the same one). nullopt if
// data.bad_records is FAIL, which accepts none. Collective.
std::optional<int64_t> count_bad_records(const RunContext& parts);

// ", 3 bad records" for the end of a summary; empty if there are none.
std::string words_for(const std::optional<int64_t>& bad_records);

// "0123456789abcdef".
std::string hash_text_of(uint64_t hash);

}  // namespace lockstep
