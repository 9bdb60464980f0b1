#include "runtime/metrics/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/time.h"

namespace lockstep {

Timeline::Timeline(int rank, size_t capacity) : rank_(rank), events_(capacity) {
  LOCKSTEP_CHECK(capacity >= 1);
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  wall_offset_ms_ = std::chrono::duration<double, std::milli>(wall).count() - now_ms();
}

Timeline::Span::Span(Timeline* timeline, const char* name, const char* category, int thread)
    : timeline_(timeline), name_(name), category_(category), thread_(thread) {
  if (timeline_ != nullptr) start_ms_ = now_ms();
}

Timeline::Span::~Span() {
  if (timeline_ != nullptr) timeline_->record(name_, category_, thread_, start_ms_, now_ms());
}

void Timeline::record(
    const char* name, const char* category, int thread, double start_ms, double end_ms) {
  const std::lock_guard lock(mutex_);
  Event& event = events_[recorded_++ % events_.size()];
  event.start_ms = start_ms;
  event.end_ms = end_ms;
  event.category = category;
  event.thread = thread;
  const size_t length = std::min(std::strlen(name), sizeof(event.name) - 1);
  std::memcpy(event.name, name, length);
  event.name[length] = '\0';
}

uint64_t Timeline::dropped() const {
  const std::lock_guard lock(mutex_);
  return recorded_ > events_.size() ? recorded_ - events_.size() : 0;
}

std::string Timeline::events_text() const {
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    events.assign(
        events_.begin(),
        events_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(recorded_, events_.size())));
  }
  // The longer first where two begin together: the outer span.
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.start_ms != b.start_ms ? a.start_ms < b.start_ms : a.end_ms > b.end_ms;
  });
  const auto text_of = [](const char* text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  std::string text = fmt::format(
      R"({{"name":"process_name","ph":"M","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}},)"
      "\n",
      rank_);
  for (const Event& event : events) {
    text +=
        fmt::format(R"({{"name":{},"cat":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}},)"
                    "\n",
                    text_of(event.name),
                    text_of(event.category),
                    rank_,
                    event.thread,
                    1000 * (event.start_ms + wall_offset_ms_),
                    1000 * std::max(0.0, event.end_ms - event.start_ms));
  }
  return text;
}

void write_timeline(const std::filesystem::path& path,
                    const std::vector<std::string>& events_texts) {
  std::string text = "[\n";
  for (const std::string& events : events_texts) text += events;
  // Strict JSON has no comma after the last element.
  if (text.ends_with(",\n")) text.replace(text.size() - 2, 2, "\n");
  write_file_atomically(path, text + "]\n");
}

}  // namespace lockstep
