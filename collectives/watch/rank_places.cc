#include "collectives/watch/rank_places.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "collectives/agreement.h"
#include "runtime/base/host.h"

namespace lockstep {

std::vector<RankPlace> gather_places(Communicator& communicator) {
  std::error_code ignored;
  const std::string processes =
      std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::vector<RankPlace> places;
  for (const std::string& text : gather_texts(
           communicator, fmt::format("{} {} {}", ::getpid(), processes, host_identity()))) {
    const size_t first = text.find(' '), second = text.find(' ', first + 1);
    places.push_back({.host = text.substr(second + 1),
                      .process = std::stoll(text.substr(0, first)),
                      .processes = text.substr(first + 1, second - first - 1)});
  }
  return places;
}

FlightMoment first_moment(int rank, const RankPlace& place) {
  return {
      .rank = rank, .process = place.process, .host = place.host.substr(0, place.host.find('/'))};
}

}  // namespace lockstep
