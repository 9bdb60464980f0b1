#pragma once
// The texts that `lockstep generate` goes on with.

#include <string>
#include <vector>

namespace lockstep {

struct Prompt {
  std::string from;  // for messages: "--prompt", or "--prompts: FILE:LINE"
  std::string text;
};

// Those of --prompt, then the lines of the file of --prompts, where there is one; a line ends with
// \n or \r\n. Throws ConfigError where the file cannot be read, and DataError where it or one of its
// lines is empty: answers stand in the order of the lines.
std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file);

// The text of a file that an option names. Throws ConfigError, which names the option.
std::string read_option_file(const char* option, const std::string& path);

}  // namespace lockstep
