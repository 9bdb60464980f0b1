#pragma once
// The texts that `lockstep generate` continues.

#include <string>
#include <vector>

namespace lockstep::launcher {

struct Prompt {
  std::string from;  // for messages: "--prompt", or "--prompts: FILE:LINE"
  std::string text;
};

// The prompts of --prompt, followed by the lines of the --prompts file if there is one. Throws
// ConfigError if the file cannot be read, and DataError if it is not text, or if it or one of its
// lines is empty, as answers are in the order of the lines.
std::vector<Prompt> read_prompts(const std::vector<std::string>& texts, const std::string& file);

// Reads the file that an option names. Throws ConfigError, which names the option.
std::string read_option_file(const char* option, const std::string& path);

}  // namespace lockstep::launcher
