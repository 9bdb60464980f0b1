#pragma once
// What a file is, by its bytes and not by its name.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct FileKind {
  std::string_view id;      // "webp"; empty: unknown
  std::string_view name;    // "a WebP image", for messages
  std::string_view remedy;  // a command or an advice; empty if there is none
  // An expression of pandas that reads the file as a table; empty if it is none. The command that
  // converts it then depends on what is wanted.
  std::string_view table = {};
  explicit operator bool() const { return !id.empty(); }
};

// How many bytes of a file file_kind() looks at.
inline constexpr size_t kFileKindBytes = 1024;

// The kind of a file that begins with `begin`, which should have kFileKindBytes, or all bytes of a
// shorter file. Knows formats that people confuse with those that we read: images, archives,
// compressed files, tables, arrays, weights, web pages, pointers of Git LFS, UTF-16. Plain text is
// unknown.
FileKind file_kind(std::string_view begin);
FileKind file_kind(std::span<const std::byte> begin);

// Whether a file begins like a JSON object, or like a list of objects or strings.
bool is_json(std::string_view begin);

// Whether a file begins like a text: its beginning is not empty, is UTF-8, and has no control
// characters but tabs and line ends.
bool is_text(std::string_view begin);

// The name of the encoding if a text is UTF-16, by its mark or, without one, by the zeros of its
// first two characters: "UTF-16", "UTF-16LE" or "UTF-16BE". Otherwise "". Numbers of 16 bits may
// begin the same.
std::string_view utf16_name(std::string_view text);

// The first kFileKindBytes of a file, or fewer; empty if it cannot be read.
std::string begin_of_file(const std::string& path);

// What a table of another format is to become.
enum class TableForm : uint8_t { kJsonLines, kCsv, kNpy, kImages };

// The end of a message about a file of the wrong format: "is a WebP image, not a NumPy array; to
// convert it: ...", "is text that begins with '404', not ...", or if the kind is unknown "is not a
// NumPy array". `wanted` has an article; `form` is its format if the file is a table.
std::string is_not(std::string_view begin,
                   std::string_view wanted,
                   TableForm form = TableForm::kJsonLines);
std::string is_not(std::span<const std::byte> begin,
                   std::string_view wanted,
                   TableForm form = TableForm::kJsonLines);

// "to convert it: python3 -c ..." for a table that pandas reads by this expression.
std::string conversion_of_table(std::string_view reader, TableForm form);

}  // namespace lockstep
