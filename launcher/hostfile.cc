#include "launcher/hostfile.h"

#include <cstdlib>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep {

std::vector<HostSlots> read_host_slots(const std::string& path, int cpus) {
  std::ifstream file(path);
  if (!file) throw ConfigError("--hostfile: cannot read '{}'; allowed: a file of hosts", path);
  std::vector<HostSlots> hosts;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    HostSlots host{words[0], cpus};
    for (const std::string& word : words)
      if (word.starts_with("slots=")) host.slots = std::atoi(word.c_str() + 6);
    if (host.slots < 1)
      throw ConfigError(
          "--hostfile: line '{}' of {}; allowed: HOST slots=N, with N of 1 or more", line, path);
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

}  // namespace lockstep
