#include "collectives/watch/rank_places.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "collectives/agreement.h"
#include "runtime/base/host.h"

namespace lockstep {

std::vector<RankPlace> gather_places(Communicator& communicator) {
  std::error_code ignored;
  const std::string processes =
      std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::vector<RankPlace> places;
  const std::string here =
      fmt::format("{}\n{}\n{}\n{}", ::getpid(), processes, host_name(), host_identity());
  for (const std::string& text : gather_texts(communicator, here)) {
    std::istringstream lines(text);
    RankPlace place;
    lines >> place.process >> std::ws;
    std::getline(lines, place.processes);
    std::getline(lines, place.host);
    std::getline(lines, place.machine);
    places.push_back(std::move(place));
  }
  return places;
}

FlightMoment first_moment(int rank, const RankPlace& place) {
  return {.rank = rank, .process = place.process, .host = place.host};
}

}  // namespace lockstep
