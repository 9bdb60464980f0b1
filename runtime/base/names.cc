#include "runtime/base/names.h"

#include <utf8proc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

#include "runtime/base/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Folders that zip and tar programs, network drives, Windows and file systems leave behind.
constexpr std::string_view kLeftFolders[] = {"__MACOSX",
                                             "__pycache__",
                                             "PaxHeader",
                                             "@eaDir",
                                             "#recycle",
                                             "@Recycle",
                                             "$RECYCLE.BIN",
                                             "System Volume Information",
                                             "lost+found"};

bool is_hidden_part(std::string_view part) {
  if (part.starts_with('.')) return part != "." && part != "..";
  return part.starts_with("PaxHeaders") ||
         std::find(std::begin(kLeftFolders), std::end(kLeftFolders), part) !=
             std::end(kLeftFolders);
}

// The first part of a path that does not exist, and an entry of its folder that looks the same.
struct LookAlike {
  std::string part;
  fs::path there;  // empty: no such entry
};

LookAlike find_look_alike(const fs::path& path) {
  fs::path folder;
  std::error_code error;
  for (const fs::path& part : path) {
    if (fs::exists(folder / part, error)) {
      folder /= part;
      continue;
    }
    fs::directory_iterator next(folder.empty() ? fs::path(".") : folder, error), end;
    for (; !error && next != end; next.increment(error)) {
      const fs::path name = next->path().filename();
      if (differ_only_in_form(name.string(), part.string())) return {part.string(), folder / name};
    }
    break;
  }
  return {};
}

// The composed form of a name, with more options of utf8proc. What is not valid UTF-8 stays.
std::string mapped_name(std::string_view name, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(name.data()),
                   static_cast<utf8proc_ssize_t>(name.size()),
                   &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) return std::string(name);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace

bool is_hidden(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (is_hidden_part(part)) return true;
    path.remove_prefix(std::min(part.size() + 1, path.size()));
  }
  return false;
}

bool has_suffix(std::string_view name, std::string_view suffix) {
  return name.size() >= suffix.size() &&
         std::equal(suffix.begin(),
                    suffix.end(),
                    name.end() - static_cast<std::ptrdiff_t>(suffix.size()),
                    [](char a, char b) { return lower(a) == lower(b); });
}

std::string normal_name(std::string_view name) {
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return (c & 0x80) == 0; });
  return ascii ? std::string(name) : mapped_name(name, 0);
}

std::string folded_name(std::string_view name) {
  constexpr std::string_view kHardBlank = "\xC2\xA0";
  const std::string folded = mapped_name(name, UTF8PROC_CASEFOLD | UTF8PROC_IGNORE);
  std::string_view text = folded;
  for (bool again = true; again;) {
    const size_t before = text.size();
    if (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
    if (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
    if (text.starts_with(kHardBlank)) text.remove_prefix(kHardBlank.size());
    if (text.ends_with(kHardBlank)) text.remove_suffix(kHardBlank.size());
    again = text.size() < before;
  }
  return std::string(text);
}

bool differ_only_in_form(std::string_view a, std::string_view b) {
  return a != b && normal_name(a) == normal_name(b);
}

std::string spell_out(std::string_view name) {
  std::string codes;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(name.data());
  for (size_t i = 0; i < name.size();) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(name.size() - i), &code);
    if (length <= 0) {
      codes += fmt::format(" \\x{:02x}", bytes[i++]);
      continue;
    }
    if (code >= 0x80) {
      codes += fmt::format(" U+{:04X}", static_cast<uint32_t>(code));
    } else if (i + 1 < name.size() && bytes[i + 1] >= 0xCC && bytes[i + 1] <= 0xCD) {
      // The letter before a combining accent (U+0300 to U+036F) belongs to the difference.
      codes += fmt::format(" U+{:04X}", static_cast<uint32_t>(code));
    }
    i += static_cast<size_t>(length);
  }
  if (codes.empty()) return fmt::format("'{}'", escape_controls(name));
  return fmt::format("'{}' ({})", escape_controls(name), codes.substr(1));
}

std::string same_looking_path(const std::string& path) {
  return find_look_alike(path).there.string();
}

std::string look_alike_remedy(const std::string& path, int error_number) {
  if (error_number != ENOENT) return "";
  const LookAlike found = find_look_alike(path);
  if (found.there.empty()) return "";
  return fmt::format("but {} is there, which looks the same as {}: use the name that is there",
                     spell_out(found.there.filename().string()),
                     spell_out(found.part));
}

std::string look_alike_hint(const std::string& path) {
  const std::string remedy = look_alike_remedy(path, ENOENT);
  return remedy.empty() ? "" : "; " + remedy;
}

}  // namespace lockstep
