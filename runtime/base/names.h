#pragma once
// Names of files, classes and columns as people read them.

#include <string>
#include <string_view>

namespace lockstep {

// Whether a file or folder is hidden: its name begins with ".", or it is a folder such as
// "__MACOSX" or "lost+found". File managers, editors and archivers leave them behind (".DS_Store",
// "._0.jpg", ".ipynb_checkpoints"), and they are never data. `path` may have folders: it is hidden
// if one of its parts is. "." and ".." are not hidden.
bool is_hidden(std::string_view path);

// Whether `name` ends with `suffix`, in upper or lower case (ASCII).
bool has_suffix(std::string_view name, std::string_view suffix);

// A name in the form in which names are compared: Unicode's composed form (NFC), because macOS
// writes "é" as "e" and an accent, and other systems as one character. A name that is not valid
// UTF-8 stays as it is.
std::string normal_name(std::string_view name);

// A name without what people overlook: case, invisible characters, and blanks at both ends, also
// hard ones. For finding names that look alike; normal_name() besides.
std::string folded_name(std::string_view name);

// Whether two names differ, but only in the form in which Unicode writes the same characters.
bool differ_only_in_form(std::string_view a, std::string_view b);

// A name for a message, in quotes, whose non-ASCII characters are spelled out:
// 'Übung' (U+0055 U+0308 at byte 0). Names that look the same become different texts.
std::string spell_out(std::string_view name);

// If `path` does not exist because of the form of a name: the path, up to that name, of the file or
// folder that looks the same. Otherwise empty.
std::string same_looking_path(const std::string& path);

// The end of a message about a path that could not be opened with `error_number`: if a file or
// folder whose name looks the same is there, both names spelled out, otherwise empty.
std::string look_alike_remedy(const std::string& path, int error_number);

// The same for a message about a path that may not exist, with "; " before it.
std::string look_alike_hint(const std::string& path);

}  // namespace lockstep
