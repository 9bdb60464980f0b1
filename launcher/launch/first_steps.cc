#include "launcher/launch/first_steps.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/passing_error.h"

namespace lockstep::launch {
namespace {

bool is_machine_failure(const StartEnd& end) {
  return end.ranks.empty() || !end.lost_hosts.empty() || !end.drained.empty() ||
         std::ranges::any_of(end.ranks, [](const RankEnd& rank) {
           return !rank.code || *rank.code == kMayPassCode;
         });
}

// The ranks that failed by themselves. If all ended because of others: all ranks if the run has a
// single host; otherwise none, because the network may have failed.
std::vector<RankEnd> failed_ranks(const StartEnd& end) {
  std::vector<RankEnd> failed;
  for (const RankEnd& rank : end.ranks)
    if (rank.code != 0 && rank.code != static_cast<int>(ExitCode::kPeer)) failed.push_back(rank);
  if (!failed.empty()) return failed;
  if (const RankEnd* const stuck = first_to_fail(end)) return {*stuck};
  const bool one_host = std::ranges::all_of(
      end.ranks, [&](const RankEnd& rank) { return rank.listed == end.ranks.front().listed; });
  const bool quiet =
      std::ranges::all_of(end.ranks, [](const RankEnd& rank) { return rank.code == 0; });
  return one_host || quiet ? end.ranks : failed;
}

}  // namespace

std::optional<RankEnd> FirstSteps::note(const StartEnd& end) {
  if (end.made_steps) failed_.clear();
  if (end.made_steps || is_machine_failure(end)) return std::nullopt;
  const std::vector<RankEnd> ranks = failed_ranks(end);
  if (ranks.empty()) return std::nullopt;
  std::map<int, int> failed;
  for (const RankEnd& rank : ranks) {
    const auto before = failed_.find(rank.rank);
    failed[rank.rank] = before == failed_.end() ? 1 : before->second + 1;
  }
  failed_ = failed;
  for (const RankEnd& rank : ranks)
    if (failed_[rank.rank] >= kStarts) return rank;
  return std::nullopt;
}

}  // namespace lockstep::launch
