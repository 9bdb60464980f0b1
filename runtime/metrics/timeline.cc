#include "runtime/metrics/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/time.h"

namespace lockstep::metrics {
namespace {

constexpr size_t kTracks = 5;
// Row numbers are reserved for each track, so that its rows stay together.
constexpr int kRowsOfTrack = 1000;

const char* title_of(Track track) {
  switch (track) {
    case Track::kSteps:
    case Track::kOps: return "steps";
    case Track::kDevice: return "device";
    case Track::kExchanges: return "exchanges of gradients";
    case Track::kGathers: return "gathers of parameters";
  }
  return "";
}

std::string json_text(const char* text) {
  return Json(text).dump({.ascii = true, .replace_invalid = true});
}

std::string name_line(const char* what, int rank, int row, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}},)"
                     "\n",
                     what,
                     rank,
                     row,
                     json_text(name.c_str()));
}

// The arguments of a span that begins a collective; empty if the arrival of a rank of the group is
// not known.
std::string arguments(const CollectiveGroup& group,
                      const ArrivalSummary* summary,
                      double arrived_ms) {
  if (group.ranks < 2 || summary == nullptr || summary->ranks != group.ranks) return "";
  return fmt::format(R"(,"args":{{"arrived_ms":{:.6f},"last":{},"behind_ms":{:.6f}}})",
                     arrived_ms - summary->first_ms,
                     summary->last_rank,
                     summary->last_ms - summary->first_ms);
}

// Assigns rows to spans, which come in order of their start.
class Rows {
 public:
  // The first row of the track whose last span has ended.
  int row_for(Track track, double start_ms, double end_ms) {
    if (track == Track::kOps) track = Track::kSteps;
    std::vector<double>& ends = ends_of(track);
    size_t row = 0;
    const bool nested = track == Track::kSteps || track == Track::kDevice;
    while (!nested && row < ends.size() && ends[row] > start_ms) ++row;
    if (row >= ends.size()) ends.resize(row + 1);
    ends[row] = end_ms;
    return number_of(track, row);
  }
  // The events that name the rows used so far.
  std::string names(int rank) const {
    std::string text;
    for (size_t track = 0; track < kTracks; ++track) {
      for (size_t row = 0; row < ends_[track].size(); ++row) {
        const std::string title = title_of(static_cast<Track>(track));
        text += name_line("thread_name",
                          rank,
                          number_of(static_cast<Track>(track), row),
                          row == 0 ? title : fmt::format("{} {}", title, row + 1));
      }
    }
    return text;
  }

 private:
  std::vector<double>& ends_of(Track track) { return ends_[static_cast<size_t>(track)]; }
  static int number_of(Track track, size_t row) {
    return static_cast<int>(track) * kRowsOfTrack + static_cast<int>(row);
  }
  std::array<std::vector<double>, kTracks> ends_;  // end of the last span on each row
};

}  // namespace

struct Timeline::Kept {
  Event event;
  uint64_t key = 0;  // of its collective
};

Timeline::Timeline(size_t capacity)
    : ops_{std::vector<Event>(capacity)}, others_{std::vector<Event>(capacity)} {
  LOCKSTEP_CHECK(capacity >= 1);
}

Timeline::Span::Span(Timeline* timeline, const char* name, const char* category, Track track)
    : timeline_(timeline), name_(name), category_(category), track_(track) {
  if (timeline_ != nullptr) start_ms_ = now_ms();
}

Timeline::Span::~Span() {
  if (timeline_ != nullptr) timeline_->record(name_, category_, track_, start_ms_, now_ms());
}

void Timeline::record(const char* name,
                      const char* category,
                      Track track,
                      double start_ms,
                      double end_ms,
                      CollectiveGroup group) {
  const std::lock_guard lock(mutex_);
  Ring& ring = track == Track::kOps ? ops_ : others_;
  Event& event = ring.events[ring.recorded++ % ring.events.size()];
  event.start_ms = start_ms;
  event.end_ms = end_ms;
  event.category = category;
  event.track = track;
  event.group = group;
  const size_t length = std::min(std::strlen(name), sizeof(event.name) - 1);
  std::memcpy(event.name, name, length);
  event.name[length] = '\0';
}

uint64_t Timeline::dropped(const Ring& ring) const {
  const std::lock_guard lock(mutex_);
  return ring.recorded > ring.events.size() ? ring.recorded - ring.events.size() : 0;
}

// In order of start. Collectives with the same name and group are identified by how many came after
// them. The number before them would not do, because a rank keeps only the newest spans.
std::vector<Timeline::Kept> Timeline::kept() const {
  std::vector<Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    for (const Ring* ring : {&others_, &ops_}) {
      const auto count = std::min<uint64_t>(ring->recorded, ring->events.size());
      for (uint64_t i = 0; i < count; ++i) kept.push_back({ring->events[i]});
    }
  }
  // If two spans begin together, the longer one comes first: it is the outer one.
  std::ranges::stable_sort(kept, [](const Kept& x, const Kept& y) {
    const Event &a = x.event, &b = y.event;
    return a.start_ms != b.start_ms ? a.start_ms < b.start_ms : a.end_ms > b.end_ms;
  });
  std::unordered_map<std::string, int> newer;
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
    const Event& event = it->event;
    if (event.group.ranks == 0) continue;
    const std::string which =
        fmt::format("{} {} {}", static_cast<int>(event.track), event.group.number, event.name);
    it->key = std::hash<std::string>{}(fmt::format("{} {}", newer[which]++, which));
  }
  return kept;
}

std::vector<CollectiveArrival> Timeline::arrivals(double add_ms) const {
  std::vector<CollectiveArrival> arrivals;
  for (const Kept& kept : kept()) {
    if (kept.event.group.ranks > 0) arrivals.push_back({kept.key, kept.event.start_ms + add_ms});
  }
  return arrivals;
}

std::string Timeline::events_text(int rank,
                                  const std::string& host,
                                  double add_ms,
                                  const CollectiveArrivals& arrivals) const {
  Rows rows;
  std::string spans;
  // Rounds to whole nanoseconds, so that nested spans stay nested.
  const auto ns_of = [&](double ms) { return std::llround(1e6 * (ms + add_ms)); };
  for (const auto& [event, key] : kept()) {
    const int64_t start_ns = ns_of(event.start_ms), end_ns = ns_of(event.end_ms);
    spans += fmt::format(
        R"({{"name":{},"cat":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}{}}},)"
        "\n",
        json_text(event.name),
        json_text(event.category),
        rank,
        rows.row_for(event.track, event.start_ms, event.end_ms),
        static_cast<double>(start_ns) / 1e3,
        static_cast<double>(std::max<int64_t>(0, end_ns - start_ns)) / 1e3,
        arguments(event.group, arrivals.find(key), event.start_ms + add_ms));
  }
  return name_line("process_name", rank, 0, fmt::format("rank {} on {}", rank, host)) +
         rows.names(rank) + spans;
}

void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts) {
  std::string text = "[\n";
  for (const std::string& events : events_texts) text += events;
  // Strict JSON has no comma after the last element.
  if (text.ends_with(",\n")) text.replace(text.size() - 2, 2, "\n");
  write_file_atomically(path, text + "]\n");
}

}  // namespace lockstep::metrics
