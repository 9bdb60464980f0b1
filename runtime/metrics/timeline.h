#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

// The rows of a rank in the trace. Spans on the first two lie within each other or apart; those on
// the others may overlap, and are spread over as many rows as that takes.
enum class Track { kSteps, kDevice, kExchanges, kGathers };

// Records spans of time and writes them as a Chrome trace, which chrome://tracing and Perfetto
// open. Space for `capacity` spans is allocated once; when it is full the oldest are overwritten.
// Recording takes a lock and two clock readings and never allocates. Thread-safe.
class Timeline {
 public:
  explicit Timeline(size_t capacity);

  // A span from construction to destruction. `name` (cut to 47 bytes) is copied at the end;
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
  void record(const char* name, const char* category, Track track, double start_ms, double end_ms);

  // Spans that were overwritten.
  uint64_t dropped() const;

  // The trace events as text, one a line, each followed by a comma and a newline, in order of
  // start: ranks send this to rank 0, whose write_timeline joins them. `rank` becomes the process
  // number of the trace, named with `host`. Times are now_ms() + `add_ms`.
  std::string events_text(int rank, const std::string& host, double add_ms) const;

 private:
  struct Event {
    double start_ms, end_ms;
    const char* category;
    Track track;
    char name[48];
  };
  mutable std::mutex mutex_;
  std::vector<Event> events_;  // ring
  uint64_t recorded_ = 0;
};

// Writes the joined events of all ranks as a JSON array, atomically. Viewers load the file even
// when its end is missing. Throws IoError.
void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts);

}  // namespace lockstep
