#pragma once
// File names with braces and wildcards.

#include <string>
#include <vector>

namespace lockstep::data {

// Expands each pattern into file names.
// - "a-{08..11}.tar" becomes a-08.tar, a-09.tar, a-10.tar and a-11.tar. Several braces multiply.
// - A name with '*' or '?' becomes the files that match it, sorted by name: '*' stands for any
//   characters but '/', '?' for one of these. As in a shell, neither stands for a "." at the
//   beginning of a name, so that hidden files do not match. All other characters stand for
//   themselves.
// Relative names are relative to `dir`; `field` is the config field, for messages. Throws
// ConfigError if braces do not hold an ascending range of numbers. Throws DataError if no file
// matches, or if a file and its compressed copy (.gz) both match.
std::vector<std::string> expand_names(const std::vector<std::string>& patterns,
                                      const std::string& dir,
                                      const std::string& field);

}  // namespace lockstep::data
