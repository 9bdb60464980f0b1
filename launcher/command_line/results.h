#pragma once
// The files that commands write their results to.

#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/json.h"

namespace lockstep::launcher {

// How the name of an output file may end, in upper or lower case: {".safetensors"}. The empty
// ending stands for all names but those with the ending of another format.
using FileEndings = std::vector<std::string_view>;

// Rejects a path, given by `flag`, with another ending. Throws ConfigError.
void require_ending(const char* flag, const std::string& path, const FileEndings& endings);

// Rejects a path, given by `flag`, that could not be written, or whose name promises another format
// than the command writes, before the work is done. For --json, "-" is the standard output: from
// then on everything else that the command prints goes to standard error, so that the JSON stands
// alone. Throws ConfigError.
void require_result_path(const char* flag,
                         const std::string& path,
                         const FileEndings& endings = {".json", ".jsonl", ""});

// Rejects the path of a folder to write, given by `flag`, whose name is that of a file.
void require_result_folder(const char* flag, const std::string& path);

// Writes `json` to a path that require_result_path() has accepted; only flushes the standard output
// if it is empty.
// Bytes that are not UTF-8 are replaced. indent -1: on one line. Throws IoError.
void write_json(const std::string& path, const Json& json, int indent = 2);

// Rank 0 writes `result` to `path`, if not empty. All ranks throw if it fails.
void write_result(collectives::Communicator& communicator,
                  const std::string& path,
                  const Json& result);

}  // namespace lockstep::launcher
