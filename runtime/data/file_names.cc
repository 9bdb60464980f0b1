#include "runtime/data/file_names.h"

#include <fnmatch.h>
#include <glob.h>

#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/held_out.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxFiles = 1'000'000;

void expand_braces(const std::string& pattern,
                   const std::string& field,
                   std::vector<std::string>* names) {
  const size_t open = pattern.find('{'), close = pattern.find('}');
  if (open == std::string::npos && close == std::string::npos) {
    if (names->size() >= kMaxFiles)
      throw ConfigError("{}: names more than {} files; allowed: fewer", field, kMaxFiles);
    names->push_back(pattern);
    return;
  }
  const auto refuse = [&] {
    config::refuse_value(
        field, lockstep::in_quotes(pattern), "braces with two ascending numbers, as in {000..012}");
  };
  if (open == std::string::npos || close == std::string::npos || close < open) refuse();
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  const size_t dots = inside.find("..");
  if (dots == std::string::npos) refuse();
  const auto number = [&](std::string_view text) {
    const int64_t value = parse_as<int64_t>(text).value_or(-1);
    if (value < 0) refuse();
    return value;
  };
  const std::string low = inside.substr(0, dots);
  const int64_t first = number(low), last = number(std::string_view(inside).substr(dots + 2));
  if (last < first) refuse();
  if (static_cast<size_t>(last - first) >= kMaxFiles)
    throw ConfigError("{}: names more than {} files; allowed: fewer", field, kMaxFiles);
  for (int64_t value = first; value <= last; ++value)
    expand_braces(pattern.substr(0, open) + fmt::format("{:0{}}", value, low.size()) +
                      pattern.substr(close + 1),
                  field,
                  names);
}

// `text` as a pattern for glob(3) in which the characters of `special` stand for themselves.
std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// The result of glob(3).
class Matches {
 public:
  explicit Matches(const std::string& pattern)
      : found_(::glob(pattern.c_str(), 0, nullptr, &glob_) == 0) {}
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  ~Matches() { ::globfree(&glob_); }
  size_t size() const { return found_ ? glob_.gl_pathc : 0; }
  const char* operator[](size_t i) const { return glob_.gl_pathv[i]; }

 private:
  glob_t glob_{};
  bool found_;
};

// For a pattern that matches nothing: a folder or file that matches but for the form in which its
// name is written, otherwise "". Looks at the parts up to the first one with a wildcard.
std::string look_alike_of(const std::filesystem::path& pattern) {
  namespace fs = std::filesystem;
  fs::path folder;
  for (const fs::path& part : pattern) {
    if (part.native().find_first_of("*?") == std::string::npos) {
      folder /= part;
      continue;
    }
    const std::string wanted = escaped(normal_name(part.native()), "[\\");
    std::error_code error;
    fs::directory_iterator next(folder.empty() ? fs::path(".") : folder, error), end;
    for (; !error && next != end; next.increment(error)) {
      const std::string there = next->path().filename().string(), normal = normal_name(there);
      if (there != normal && ::fnmatch(wanted.c_str(), normal.c_str(), FNM_PERIOD) == 0)
        return fmt::format("; but {} is there, whose name is written in another form than {}",
                           spell_out(there),
                           spell_out(part.native()));
    }
    break;
  }
  return look_alike_hint(folder.string());
}

// Appends the absolute paths of the files that match. Throws DataError if a file and its compressed
// copy both match, because both would be read.
void expand_stars(const std::string& name,
                  const std::string& dir,
                  const std::string& field,
                  std::vector<std::string>* names) {
  if (name.find_first_of("*?") == std::string::npos) return names->push_back(name);
  namespace fs = std::filesystem;
  const Matches matches((fs::path(escaped(dir, "*?[\\")) / escaped(name, "[\\")).string());
  if (matches.size() == 0) {
    const fs::path pattern = fs::path(dir) / name;
    const std::string other = look_alike_of(pattern);
    throw DataError("{}: no file matches '{}'{}",
                    field,
                    pattern.string(),
                    other.empty() ? eval_remedy_for(field) : other);
  }
  std::vector<std::string> found;
  for (size_t i = 0; i < matches.size(); ++i) found.push_back(fs::absolute(matches[i]).string());
  const std::unordered_set<std::string> all(found.begin(), found.end());
  for (const std::string& match : found)
    if (all.count(match + ".gz") > 0)
      throw DataError("{}: '{}' matches both '{}' and '{}.gz'; allowed: one of the two",
                      field,
                      name,
                      match,
                      match);
  names->insert(names->end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> expand_names(const std::vector<std::string>& patterns,
                                      const std::string& dir,
                                      const std::string& field) {
  std::vector<std::string> names, expanded;
  for (const std::string& pattern : patterns) expand_braces(pattern, field, &names);
  for (const std::string& name : names) expand_stars(name, dir, field, &expanded);
  return expanded;
}

}  // namespace lockstep::data
