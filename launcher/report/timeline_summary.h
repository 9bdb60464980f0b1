#pragma once
// What a timeline.json says in total: how each rank spends its steps, and who comes late.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::report {

// Times in ms.
struct RankTimeline {
  std::string name;  // "rank 0 on node1"
  int64_t steps = 0;
  double step_ms = 0;    // of all steps
  double passes_ms = 0;  // forward and backward, with the waits within
  double pass_waits_ms = 0;
  double waits_ms = 0;     // for other ranks, altogether
  double transfer_ms = 0;  // while an exchange or a gather was under way
  // Collectives at which this rank came last, and how much later than the first one in all.
  int64_t last = 0;
  double behind_ms = 0;
};

// By rank.
using TimelineSummary = std::map<int64_t, RankTimeline>;

// Reads the text of a timeline, an event a line. Lines that are no events are ignored. The spans of
// a rank must be in the order of their start, as metrics/timeline.h writes them.
TimelineSummary summarize_timeline(std::string_view text);

// Empty if the file is missing. Throws IoError.
TimelineSummary read_timeline_summary(const std::filesystem::path& path);

}  // namespace lockstep::report
