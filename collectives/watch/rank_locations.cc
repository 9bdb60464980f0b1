#include "collectives/watch/rank_locations.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"

namespace lockstep::collectives {

std::vector<RankLocation> gather_locations(Communicator& communicator) {
  std::error_code ignored;
  const std::string pid_namespace =
      std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::vector<RankLocation> locations;
  const std::string here =
      fmt::format("{}\n{}\n{}\n{}", ::getpid(), pid_namespace, host_name(), host_identity());
  for (const std::string& text : gather_texts(communicator, here)) {
    std::istringstream lines(text);
    RankLocation location;
    lines >> location.process >> std::ws;
    std::getline(lines, location.pid_namespace);
    std::getline(lines, location.host);
    std::getline(lines, location.machine);
    locations.push_back(std::move(location));
  }
  return locations;
}

FlightMoment first_moment(int rank, const RankLocation& location) {
  return {.rank = rank, .process = location.process, .host = location.host};
}

}  // namespace lockstep::collectives
