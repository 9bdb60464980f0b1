#pragma once
// timeline.json of the run folder: a trace of what the ranks did when.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/metrics/arrivals.h"

namespace lockstep::metrics {

// The rows of a rank in the trace. Spans on kSteps, kOps and kDevice are nested or disjoint, and
// kOps shares the row of kSteps. Spans on the other tracks may overlap, and take as many rows as
// needed.
enum class Track { kSteps, kOps, kDevice, kExchanges, kGathers };

// Records spans of time and writes them as a Chrome trace, which chrome://tracing and Perfetto
// open. Memory for `capacity` ops, which are many, and for as many other spans is allocated once.
// When it is full, the oldest are overwritten. Recording takes a lock and two clock readings and
// never allocates. Thread-safe.
class Timeline {
 public:
  explicit Timeline(size_t capacity);

  // Names are truncated to so many bytes.
  static constexpr size_t kMaxName = 63;

  // A span from construction to destruction. `name` is copied at the end.
  // `category` must outlive the timeline (a literal). A null timeline records nothing, at no cost.
  class Span {
   public:
    Span(Timeline* timeline, const char* name, const char* category, Track track = Track::kSteps);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Timeline* timeline_;
    const char* name_;
    const char* category_;
    Track track_;
    double start_ms_ = 0;
  };

  // Records a span between two now_ms() readings, for work that is timed elsewhere.
  // `group` has the ranks that take part in the span. Each of them must record the same spans of
  // this name and group in the same order, and all must have done so when arrivals() is called.
  void record(const char* name,
              const char* category,
              Track track,
              double start_ms,
              double end_ms,
              CollectiveGroup group = {});

  // The number of ops, and of other spans, that were overwritten.
  uint64_t dropped_ops() const { return dropped(ops_); }
  uint64_t dropped() const { return dropped(others_); }

  // When this rank arrived at each collective that is still recorded: now_ms() + `add_ms`.
  std::vector<CollectiveArrival> arrivals(double add_ms) const;

  // The trace events as text: one per line, each followed by a comma, in order of start. Ranks send
  // this to rank 0, whose write_timeline() joins them. `rank` becomes the process number of the
  // trace, labelled with `host`. Times are now_ms() + `add_ms`. If the arrivals of all ranks of a
  // group at a span are in `arrivals`, the span has as arguments how much later than the first rank
  // this rank and the last rank arrived (in milliseconds), and which rank was last.
  std::string events_text(int rank,
                          const std::string& host,
                          double add_ms,
                          const CollectiveArrivals& arrivals = CollectiveArrivals({})) const;

 private:
  struct Event {
    double start_ms, end_ms;
    const char* category;
    Track track;
    CollectiveGroup group;
    char name[kMaxName + 1];
  };
  struct Ring {
    std::vector<Event> events;
    uint64_t recorded = 0;
  };
  struct Kept;  // an event, and the key of its collective
  uint64_t dropped(const Ring& ring) const;
  std::vector<Kept> kept() const;

  mutable std::mutex mutex_;
  Ring ops_, others_;
};

// Writes the joined events of all ranks as a JSON array, atomically. Throws IoError.
void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts);

}  // namespace lockstep::metrics
