#include "launcher/launch/restarts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/passing_error.h"

namespace lockstep::launch {
namespace {

constexpr std::array kFinal = {ExitCode::kUsage,
                               ExitCode::kData,
                               ExitCode::kCheckpoint,
                               ExitCode::kMemory,
                               ExitCode::kNumeric};

constexpr int kPeer = static_cast<int>(ExitCode::kPeer),
              kPreempted = static_cast<int>(ExitCode::kPreempted);

bool is_final(int code) {
  return std::ranges::any_of(kFinal,
                             [&](ExitCode final) { return static_cast<int>(final) == code; });
}

}  // namespace

Decision decide(const StartEnd& end) {
  if (end.done) return {.code = 0};
  for (const RankEnd& rank : end.ranks)
    if (rank.code && is_final(*rank.code)) return {.code = *rank.code};
  if (!end.other_build.empty()) return {.code = static_cast<int>(ExitCode::kUsage)};
  const auto any_ended_with = [&](int code) {
    return std::ranges::any_of(end.ranks, [&](const RankEnd& rank) { return rank.code == code; });
  };
  if (any_ended_with(kPreempted))
    return {.again = !end.stop_requested && !end.drained.empty(), .code = kPreempted};
  if (end.stop_requested && any_ended_with(kMayPassCode))
    return {.code = static_cast<int>(ExitCode::kCheckpoint)};  // it could not save
  if (end.stop_requested && !end.work_lost) return {.code = kPreempted};
  return {.again = !end.stop_requested && !end.too_few_left, .code = kPeer};
}

const RankEnd* first_to_fail(const StartEnd& end) {
  const auto failed = std::ranges::find_if(end.ranks, [](const RankEnd& rank) {
    return rank.code != 0 && rank.code != kPreempted && rank.code != kPeer &&
           rank.code != kMayPassCode;
  });
  if (failed != end.ranks.end()) return &*failed;
  const auto stuck = std::ranges::find(end.ranks, end.stuck_rank, &RankEnd::rank);
  return stuck == end.ranks.end() ? nullptr : &*stuck;
}

std::string text_of(const RankEnd& end) {
  const std::string who =
      fmt::format("rank {} on {} (process {})", end.rank, end.host, end.process);
  if (!end.state.empty()) return fmt::format("{} cannot be killed: {}", who, end.state);
  if (!end.code) return who + " was lost with its host";
  if (*end.code > 128)
    return fmt::format(
        "{} was ended by signal {} ({})", who, *end.code - 128, strsignal(*end.code - 128));
  return fmt::format("{} ended with exit code {}", who, *end.code);
}

std::optional<double> Restarts::next() {
  constexpr double kFirstSeconds = 1, kMaxSeconds = 60;
  if (in_a_row_ >= max_) return std::nullopt;
  return std::min(kMaxSeconds, kFirstSeconds * std::exp2(in_a_row_++));
}

int ranks_for(int wanted, int slots, bool fewer) {
  if (slots >= wanted) return wanted;
  return fewer ? slots : 0;
}

}  // namespace lockstep::launch
