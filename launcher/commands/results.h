#pragma once
// What commands do with their results: the --json file, and texts for the last lines.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/ranks/session.h"
#include "runtime/base/json.h"
#include "runtime/train/run_context.h"

namespace lockstep {

// How the name of an output file may end, in upper or lower case: {".safetensors"}. The empty
// ending stands for all names but those with the ending of another format.
using FileEndings = std::vector<std::string_view>;

// Rejects a path, given by `flag`, that could not be written, or whose name promises another format
// than the command writes, before the work is done. For --json, "-" is the standard output: from
// then on everything else that the command prints goes to standard error, so that the JSON stands
// alone. Throws ConfigError.
void require_result_path(const char* flag,
                         const std::string& path,
                         const FileEndings& endings = {".json", ".jsonl", ""});

// Rejects the path of a folder to write, given by `flag`, whose name is that of a file.
void require_result_folder(const char* flag, const std::string& path);

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

// ", 3 steps skipped" with the reason, for the end of a summary; empty if there are none.
std::string words_for_skipped(int64_t steps, const RunConfig& config);

// "0123456789abcdef".
std::string hash_text_of(uint64_t hash);

}  // namespace lockstep
