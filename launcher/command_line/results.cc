#include "launcher/command_line/results.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/standard_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kStandardOutput = "-";
int json_output = -1;  // copy of the original standard output, once that is reserved for JSON

void keep_output_for_json() {
  if (json_output >= 0) return;
  std::fflush(stdout);
  if (output_was_closed()) throw IoError("write", "the standard output", EBADF);
  json_output = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (json_output < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw IoError("copy", "the standard output", errno);
}

// Endings that promise a format.
constexpr std::string_view kFormatEndings[] = {
    ".safetensors", ".onnx", ".gguf", ".pt",        ".pth", ".ckpt", ".bin",   ".h5",
    ".msgpack",     ".npy",  ".npz",  ".csv",       ".tsv", ".json", ".jsonl", ".parquet",
    ".xlsx",        ".yaml", ".yml",  ".textproto", ".png", ".jpg",  ".jpeg",  ".gif",
    ".webp",        ".pdf",  ".html", ".tar",       ".zip", ".gz",   ".tgz"};

bool has_format_ending(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::ranges::any_of(kFormatEndings,
                             [&](std::string_view ending) { return has_suffix(path, ending); });
}

}  // namespace

void require_ending(const char* flag, const std::string& path, const FileEndings& endings) {
  bool others = false;
  std::string list;
  for (const std::string_view ending : endings) {
    if (ending.empty()) {
      others = !has_format_ending(path);
      list += ", or with none that means another format";
    } else {
      if (has_suffix(path, ending)) return;
      append_item(list, ending, " or ");
    }
  }
  if (others) return;
  throw ConfigError("{}: value is '{}'; the name must end with {}", flag, path, list);
}

void require_result_path(const char* flag, const std::string& path, const FileEndings& endings) {
  const bool optional = std::string_view(flag) == "--json";
  if (path.empty() && optional) return;
  if (path.empty()) throw ConfigError("{}: value is ''; give the name of a file", flag);
  if (path == kStandardOutput && optional) return keep_output_for_json();
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  // An existing file will be replaced; a device file must not be.
  try {
    check_replaceable(path);
  } catch (const IoError& error) {
    throw ConfigError(
        "{}: {}; allowed: an ordinary file in an existing folder", flag, error.what());
  }
  const bool other = lockstep::is_there(path) && !is_file(path);
  if (other || !is_folder(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw ConfigError(
        "{}: cannot write '{}'; allowed: an ordinary file in an existing folder", flag, path);
  require_ending(flag, path, endings);
}

void require_result_folder(const char* flag, const std::string& path) {
  if (path.empty()) throw ConfigError("{}: value is ''; give the name of a folder", flag);
  if (is_folder(path) || !has_format_ending(path)) return;
  throw ConfigError(
      "{}: value is '{}', but a folder is written; give a name without the ending of a file",
      flag,
      path);
}

void write_json(const std::string& path, const Json& json, int indent) {
  std::fflush(stdout);  // what was printed before comes first
  if (path.empty()) return;
  const std::string text = json.dump({.indent = indent, .replace_invalid = true}) + "\n";
  if (path != kStandardOutput) return write_file_atomically(path, text);
  if (results_are_queued())
    return standard_output().add(json_output, text, OutputQueue::Kind::kResult);
  if (!write_patiently(json_output, text)) throw IoError("write", "the standard output", errno);
}

void write_result(collectives::Communicator& communicator,
                  const std::string& path,
                  const Json& result) {
  if (!path.empty()) collectives::run_on_root(communicator, [&] { write_json(path, result); });
}

}  // namespace lockstep::launcher
