#include "launcher/ranks/hostfile.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/host.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

// The file may be a pipe, such as <(scontrol show hostnames).
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text(kMaxBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0 && !file.eof())
    throw ConfigError("--hostfile: cannot read '{}'; it must be a file that lists hosts", path);
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxBytes)
    throw ConfigError("--hostfile: '{}' has more than {} bytes; it must be a file that lists hosts",
                      path,
                      kMaxBytes);
  return text;
}

// A name that begins with a dash would be taken for an option of the remote shell.
bool is_host_name(const std::string& name) {
  return name.front() != '-' && std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view("-._:%@[]").find(static_cast<char>(c)) != std::string_view::npos;
         });
}

// 0 if the text is not a number.
int slots_of(const std::string& text) {
  const bool number =
      !text.empty() && text.size() < 8 &&
      std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? std::stoi(text) : 0;
}

}  // namespace

std::vector<HostSlots> read_host_slots(const std::string& path, int cpus) {
  const std::string text = text_of(path);
  if (const FileKind kind = file_kind(text); kind)
    throw ConfigError("--hostfile: {} {}", path, is_not(text, "text that lists hosts"));
  std::vector<HostSlots> hosts;
  Lines lines(text);
  for (std::string_view line; lines.next(&line);) {
    const std::vector<std::string> words = words_of(std::string(line.substr(0, line.find('#'))));
    if (words.empty()) continue;
    HostSlots host{words[0], cpus};
    for (const std::string& word : words) {
      if (word.starts_with("slots=")) host.slots = slots_of(word.substr(6));
      // Other words are those of other launchers: max_slots=N, a comment.
      if (word.find('=') != std::string::npos && word.find("slots=") == std::string::npos)
        host.slots = 0;
    }
    if (!is_host_name(host.name))
      throw ConfigError(
          "--hostfile: {} in {} is not a host name; allowed: letters, digits and "
          "-._:%@[], not beginning with -",
          spell_out(host.name),
          path);
    if (host.slots < 1)
      throw ConfigError("--hostfile: line '{}' of {}; allowed: HOST slots=N, with N of 1 or more",
                        escape_controls(line),
                        path);
    hosts.push_back(host);
  }
  if (hosts.empty())
    throw ConfigError("--hostfile: {} names no host; allowed: lines HOST slots=N", path);
  return hosts;
}

bool is_this_host(const std::string& name) {
  const std::string here = host_name();
  return name == "localhost" || name == "127.0.0.1" || name == here ||
         name == here.substr(0, here.find('.'));
}

}  // namespace lockstep::launcher
