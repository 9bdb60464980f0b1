#include "launcher/launch/given_files.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/names.h"
#include "runtime/config/differences.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 1000;  // in a folder
constexpr int64_t kSmallBytes = 1 << 20;

// A small file's checksum; a larger file's size and modification time.
std::string state_of_file(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::strerror(errno);
  if (S_ISREG(status.st_mode) && status.st_size <= kSmallBytes) {
    try {
      return to_hex(hash_text(read_file(path, kSmallBytes)));
    } catch (const IoError& error) {
      return error.what();
    }
  }
  return fmt::format(
      "{} bytes, {}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

// A checksum of a file, or of a folder and its direct entries that are not hidden.
std::string state_of(const fs::path& path) {
  std::string state = state_of_file(path);
  std::error_code error;
  if (!fs::is_directory(path, error)) return to_hex(hash_text(state));
  std::vector<std::string> entries;
  for (fs::directory_iterator entry(path, error), end;
       !error && entry != end && entries.size() < kMaxEntries;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!is_hidden(name)) entries.push_back(name + state_of_file(entry->path()));
  }
  std::ranges::sort(entries);
  for (const std::string& entry : entries) state += "\n" + entry;
  return to_hex(hash_text(state));
}

// The strings in a field's value: "a", or ["a", "b"].
std::vector<std::string> texts_in(const std::string& value) {
  std::vector<std::string> texts;
  for (size_t begin = value.find('"'); begin != std::string::npos;) {
    const size_t end = value.find('"', begin + 1);
    if (end == std::string::npos) break;
    texts.push_back(value.substr(begin + 1, end - begin - 1));
    begin = value.find('"', end + 1);
  }
  return texts;
}

}  // namespace

void GivenFiles::add(const std::string& path,
                     const std::string& named_by,
                     const std::string& meaning) {
  files_.push_back({path, named_by, meaning, state_of(path)});
}

// Whether a string is a path, and relative to data.dir or not, is found by looking at the disk.
void GivenFiles::add_named_in(const RunConfig& config) {
  for (const config::FieldValue& field : config::field_values(config)) {
    if (field.path == "name" || field.path == "data.dir" || field.path.starts_with("output.") ||
        field.path.starts_with("checkpoint."))
      continue;
    for (const std::string& text : texts_in(field.value)) {
      std::error_code error;
      for (const fs::path& path : {fs::path(config.data.dir) / text, fs::path(text)}) {
        if (text.empty() || text == "." || !fs::exists(path, error)) continue;
        add(path.string(), field.path, "the next start reads it as it is now");
        break;
      }
    }
  }
}

std::string GivenFiles::states() const {
  Json states = Json::array();
  for (const Given& file : files_) states.push_back(state_of(file.path));
  return states.dump();
}

std::vector<std::string> GivenFiles::changes(const std::string& states) {
  const Json now = Json::parse(states);
  std::vector<std::string> lines;
  for (size_t i = 0; i < files_.size(); ++i) {
    Given& file = files_[i];
    const std::string state = now.at(i).get<std::string>();
    if (state == file.state) continue;
    file.state = state;
    lines.push_back(fmt::format(
        "'{}' ({}) has changed since the first start: {}", file.path, file.named_by, file.meaning));
  }
  return lines;
}

}  // namespace lockstep::launch
