#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

// Records spans of time and writes them as a Chrome trace, which chrome://tracing and Perfetto
// open. Space for `capacity` spans is allocated once; when it is full the oldest are overwritten.
// Recording takes a lock and two clock readings and never allocates. Thread-safe.
class Timeline {
 public:
  // `rank` becomes the process number of the trace.
  Timeline(int rank, size_t capacity);

  // A span from construction to destruction. `name` (cut to 47 bytes) is copied; `category` must
  // outlive the timeline (a literal). `thread` numbers the row in the trace. A null timeline
  // records nothing, at no cost.
  class Span {
   public:
    Span(Timeline* timeline, const char* name, const char* category, int thread = 0);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Timeline* timeline_;
    const char* name_;
    const char* category_;
    int thread_;
    double start_ms_ = 0;
  };

  // A span between two now_ms() readings, for work timed elsewhere.
  void record(const char* name, const char* category, int thread, double start_ms, double end_ms);

  // Spans that were overwritten.
  uint64_t dropped() const;

  // The trace events as text, one a line, each followed by a comma and a newline, in order of
  // start: ranks send this to rank 0, whose write_timeline joins them. Times are wall-clock
  // microseconds, so ranks on hosts with equal clocks line up.
  std::string events_text() const;

 private:
  struct Event {
    double start_ms, end_ms;
    const char* category;
    int thread;
    char name[48];
  };
  int rank_;
  double wall_offset_ms_;  // added to now_ms() gives wall-clock milliseconds
  mutable std::mutex mutex_;
  std::vector<Event> events_;  // ring
  uint64_t recorded_ = 0;
};

// Writes the joined events of all ranks as a JSON array, atomically. Viewers load the file even
// when its end is missing. Throws IoError.
void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts);

}  // namespace lockstep
