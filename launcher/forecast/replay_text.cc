#include <fmt/core.h>

#include "launcher/forecast/forecast_text.h"
#include "launcher/forecast/replay.h"

namespace lockstep::forecast {

void print_replay(const Replay& replay) {
  const std::string what = replay.whole
                               ? "its timeline has no ops, so that a step is moved as a whole"
                               : fmt::format("{} of {} ops matched, {:.3g}% of their time",
                                             replay.matched,
                                             replay.ops,
                                             100 * replay.share);
  fmt::print("  {:<12} from the measured timeline of {} on {}, {} a step; {}\n",
             "predicted",
             replay.run,
             replay.from,
             seconds_text(Range::exactly(replay.step_s)),
             what);
}

void explain_replay(const Replay& replay) {
  constexpr size_t kPrinted = 12;
  fmt::print("\nmeasured in a step of {} on {}, and moved by the ratio of predictions:\n",
             replay.run,
             replay.from);
  fmt::print("  {:<34}{:>16}{:>10}  {}\n", "", "measured", "ratio", "predicted");
  for (size_t i = 0; i < std::min(kPrinted, replay.parts.size()); ++i) {
    const ReplayedPart& part = replay.parts[i];
    fmt::print("  {:<34}{:>16}{:>10.3g}  {}\n",
               part.name,
               seconds_text(Range::exactly(part.here_s)),
               part.ratio(),
               seconds_text(part.there_s));
  }
  if (replay.parts.size() > kPrinted)
    fmt::print("  and {} other kinds\n", replay.parts.size() - kPrinted);
}

void add_replay(const Replay& replay, Json& json) {
  Json& member = json["replay"];
  member = Json::object({{"timeline", replay.run},
                         {"from", replay.from},
                         {"measured_step_seconds", replay.step_s},
                         {"whole", replay.whole},
                         {"ops", replay.ops},
                         {"matched_ops", replay.matched},
                         {"matched_share", replay.share}});
  for (const ReplayedPart& part : replay.parts)
    member["parts"].push_back(Json::object(
        {{"part", part.name},
         {"measured_seconds", part.here_s},
         {"predicted_ratio", part.ratio()},
         {"predicted_seconds", Json::array({Json(part.there_s.low), Json(part.there_s.high)})}}));
}

}  // namespace lockstep::forecast
