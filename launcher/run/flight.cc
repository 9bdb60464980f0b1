#include "launcher/run/flight.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "launcher/command_line/results.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/json.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kShown = 5;  // newest operations of a rank

Json to_json(const FlightMoment& moment, const std::vector<FlightEntry>& entries) {
  Json json = Json::object({{"rank", moment.rank},
                            {"host", moment.host},
                            {"process", moment.process},
                            {"step", moment.step},
                            {"last", text_of(moment)}});
  for (const FlightEntry& entry : entries)
    json["entries"].push_back(Json::object({{"time_ns", entry.time_ns},
                                            {"step", entry.step},
                                            {"collective", static_cast<int64_t>(entry.collective)},
                                            {"what", text_of(entry)}}));
  return json;
}

}  // namespace

void show_flight(const std::filesystem::path& run_dir, const std::string& json) {
  const std::filesystem::path folder = run_dir / "flight";
  Json report;
  int ranks = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto reader = FlightReader::open(flight_path(folder, rank));
    if (reader == nullptr) {
      if (rank == 0) throw CheckpointError("'{}': no flight recorder of rank 0", folder.string());
      fmt::print("rank {}: no flight recorder here\n", rank);
      continue;
    }
    const FlightMoment moment = reader->now();
    const std::vector<FlightEntry> entries = reader->entries();
    ranks = moment.ranks;
    fmt::print(
        "rank {} on {}, process {}: {}\n", rank, moment.host, moment.process, text_of(moment));
    for (size_t i = entries.size() - std::min(kShown, entries.size()); i < entries.size(); ++i)
      fmt::print("  step {}: {}\n", entries[i].step, text_of(entries[i]));
    report["ranks"].push_back(to_json(moment, entries));
  }
  write_json(json, report);
}

}  // namespace lockstep::launcher
