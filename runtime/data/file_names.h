#pragma once
// Several files by one name.

#include <string>
#include <vector>

namespace lockstep {

// "a-{08..11}.tar" is a-08.tar, a-09.tar, a-10.tar and a-11.tar; several braces multiply. Of a name
// with '*' or '?' the files that match it, in the order of their names: '*' stands for any
// characters but '/', '?' for one; all else stands for itself. `dir`: where names that are not
// absolute begin; `field`, of the config, for messages. Throws ConfigError on braces that are not
// numbers upwards, DataError where no file matches, or a file and its compressed copy (.gz).
std::vector<std::string> expand_names(const std::vector<std::string>& patterns,
                                      const std::string& dir,
                                      const std::string& field);

}  // namespace lockstep
