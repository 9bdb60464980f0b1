#pragma once
// timeline.json of the run folder, a trace of what ranks did when.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/metrics/meetings.h"

namespace lockstep {

// The rows of a rank in the trace. Spans on the first three lie within each other or apart, and
// kOps on the row of kSteps; those on the others may overlap, and are spread over as many rows as
// that takes.
enum class Track { kSteps, kOps, kDevice, kExchanges, kGathers };

// Records spans of time and writes them as a Chrome trace, which chrome://tracing and Perfetto
// open. Space for `capacity` ops, which are many, and for as many other spans is allocated once;
// where it is full the oldest are overwritten. Recording takes a lock and two clock readings and
// never allocates. Thread-safe.
class Timeline {
 public:
  explicit Timeline(size_t capacity);

  // A span from construction to destruction. `name` (cut to 63 bytes) is copied at the end;
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

  // A span between two now_ms() readings, for work timed elsewhere.
  // `group` meets in it: each of its ranks records the same spans of this name and group in the
  // same order, and all have done so when arrivals() is called.
  void record(const char* name,
              const char* category,
              Track track,
              double start_ms,
              double end_ms,
              MeetingGroup group = {});

  // Ops and other spans that were overwritten.
  uint64_t dropped_ops() const { return dropped(ops_); }
  uint64_t dropped() const { return dropped(others_); }

  // When this rank came to each meeting that is kept: now_ms() + `add_ms`.
  std::vector<MeetingArrival> arrivals(double add_ms) const;

  // The trace events as text, one a line, each followed by a comma and a newline, in order of
  // start: ranks send this to rank 0, whose write_timeline joins them. `rank` becomes the process
  // number of the trace, named with `host`. Times are now_ms() + `add_ms`. What all ranks of a
  // group have told `meetings` of has as arguments, in milliseconds after the first rank came, when
  // this one did and when the last did, and which that was.
  std::string events_text(int rank,
                          const std::string& host,
                          double add_ms,
                          const Meetings& meetings = Meetings({})) const;

 private:
  struct Event {
    double start_ms, end_ms;
    const char* category;
    Track track;
    MeetingGroup group;
    char name[64];
  };
  struct Ring {
    std::vector<Event> events;
    uint64_t recorded = 0;
  };
  struct Kept;  // an event, and which meeting it is
  uint64_t dropped(const Ring& ring) const;
  std::vector<Kept> kept() const;

  mutable std::mutex mutex_;
  Ring ops_, others_;
};

// Writes the joined events of all ranks as a JSON array, atomically. Viewers load the file even
// when its end is missing. Throws IoError.
void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts);

}  // namespace lockstep
