#include "runtime/base/output_queue.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kPollMs = 100;  // between checks whether the queue has ended
constexpr double kFirstPauseMs = 100, kLongestPauseMs = 1000;  // between attempts that fail
// The max wait until the thread notices the end.
constexpr double kEndMs = 1000;

struct Entry {
  int descriptor = -1;
  std::string text;
  OutputQueue::Kind kind = OutputQueue::Kind::kLog;
};

void count(OutputQueue::Counts& counts, OutputQueue::Kind kind) {
  ++counts.lines;
  if (kind == OutputQueue::Kind::kResult) ++counts.results;
}

// Waits until the descriptor can be written, and then writes as much as a pipe takes at once.
// Returns 0 if it cannot be written within `limit_ms`, and a negative number with errno after an
// error.
ssize_t write_part(int descriptor, std::string_view bytes, int limit_ms) {
  pollfd entry{descriptor, POLLOUT, 0};
  if (::poll(&entry, 1, limit_ms) == 0) return 0;
  const ssize_t wrote = ::write(descriptor, bytes.data(), std::min(bytes.size(), size_t{PIPE_BUF}));
  if (wrote >= 0 || (errno != EINTR && errno != EAGAIN)) return wrote;
  ::poll(nullptr, 0, 1);  // another process made the descriptor non-blocking
  return 0;
}

}  // namespace

struct OutputQueue::State {
  explicit State(Options chosen) : options(std::move(chosen)) {}

  const Options options;
  const pid_t process = ::getpid();
  bool has_thread = false;  // false if it could not be started
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries;
  size_t bytes = 0;  // memory that the entries take
  Counts lost, in_batch;
  uint64_t unreported = 0;  // dropped lines that no line reports yet
  uint64_t written = 0;     // bytes
  uint64_t failures = 0;
  int last_error = 0;
  bool retry = false;
  std::atomic<bool> nothing_waits = true, ended = false;
  bool thread_ended = false;

  // The text that is being written, by the thread that has set `writing`. All of it is for one
  // descriptor.
  bool writing = false;
  std::string batch;
  size_t batch_done = 0;
  int batch_descriptor = -1;
  bool inside_line = false;
  bool redrawn = false;  // the newest text was a kRedraw that stands on a terminal

  bool writes_itself() const { return !has_thread || ::getpid() != process; }
  bool has_batch() const { return batch_done < batch.size(); }

  void drop_oldest() {
    count(lost, entries.front().kind);
    ++unreported;
    bytes -= entries.front().text.size() + sizeof(Entry);
    entries.pop_front();
  }

  // Takes as many whole lines as one write() can take, or a single longer one.
  void begin_batch() {
    batch.clear();
    batch_done = 0;
    batch_descriptor = entries.front().descriptor;
    if (unreported > 0)
      batch = fmt::format("{}lockstep: {} line{} dropped here, since nobody read them in time\n",
                          inside_line ? "\n" : "",
                          unreported,
                          unreported == 1 ? " was" : "s were");
    unreported = 0;
    while (!entries.empty() && entries.front().descriptor == batch_descriptor &&
           (batch.empty() || batch.size() + entries.front().text.size() <= PIPE_BUF)) {
      const Entry& entry = entries.front();
      if (redrawn && entry.kind != Kind::kRedraw && !entry.text.starts_with('\n'))
        batch += kEraseLine;
      redrawn = entry.kind == Kind::kRedraw && entry.text.starts_with(kEraseLine);
      batch += entry.text;
      count(in_batch, entries.front().kind);
      bytes -= entries.front().text.size() + sizeof(Entry);
      entries.pop_front();
    }
    inside_line = batch.back() != '\n';
  }

  // Makes one attempt to write, which waits up to `limit_ms`. The lock is released meanwhile.
  void write(std::unique_lock<std::mutex>& lock, int limit_ms) {
    if (std::exchange(writing, true)) {  // without a queue thread: another one adds or flushes
      changed.wait_for(lock, Milliseconds(limit_ms));
      return;
    }
    if (!has_batch()) begin_batch();
    lock.unlock();
    const ssize_t wrote =
        write_part(batch_descriptor, std::string_view(batch).substr(batch_done), limit_ms);
    const int error = wrote < 0 ? errno : 0;
    lock.lock();
    writing = false;
    if (wrote == 0) return;
    last_error = error;
    if (error != 0) {
      ++failures;
    } else {
      written += static_cast<uint64_t>(wrote);
      batch_done += static_cast<size_t>(wrote);
    }
    if (!has_batch()) in_batch = {};
    nothing_waits = entries.empty() && !has_batch();
    changed.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex);
    double pause_ms = kFirstPauseMs;
    while (true) {
      changed.wait(lock, [this] { return ended || !nothing_waits; });
      if (ended) break;
      const uint64_t failures_before = failures;
      write(lock, kPollMs);
      if (failures == failures_before) {
        if (last_error == 0) pause_ms = kFirstPauseMs;
        continue;
      }
      if (failures == 1 && options.on_failure) {
        lock.unlock();
        options.on_failure(last_error);
        lock.lock();
      }
      changed.wait_for(lock, Milliseconds(pause_ms), [this] { return ended || retry; });
      retry = false;
      pause_ms = std::min(2 * pause_ms, kLongestPauseMs);
    }
    thread_ended = true;
    changed.notify_all();
  }
};

OutputQueue::OutputQueue(Options options) : state_(std::make_shared<State>(std::move(options))) {
  // Signals are handled by other threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->has_thread = true;
    std::thread([state = state_] { state->run(); }).detach();
  } catch (const std::system_error&) {
    state_->has_thread = false;  // add() writes what it can without blocking
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputQueue::~OutputQueue() {
  if (state_->writes_itself()) return;
  std::unique_lock lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, Milliseconds(kEndMs), [this] { return state_->thread_ended; });
}

void OutputQueue::add(int descriptor, std::string text, Kind kind) {
  if (text.empty()) return;
  std::unique_lock lock(state_->mutex);
  std::deque<Entry>& entries = state_->entries;
  if (kind == Kind::kRedraw && !entries.empty() && entries.back().kind == kind &&
      entries.back().descriptor == descriptor) {
    state_->bytes += text.size() - entries.back().text.size();
    entries.back().text = std::move(text);
    return;
  }
  state_->bytes += text.size() + sizeof(Entry);
  entries.push_back({descriptor, std::move(text), kind});
  while (state_->bytes > state_->options.max_bytes && entries.size() > 1) state_->drop_oldest();
  state_->nothing_waits = false;
  state_->changed.notify_all();
  if (state_->has_thread) return;
  for (uint64_t before = ~state_->written; before != state_->written && !state_->nothing_waits;) {
    before = state_->written;
    state_->write(lock, 0);
  }
}

bool OutputQueue::flush(double stall_ms, double limit_ms) {
  std::unique_lock lock(state_->mutex);
  const uint64_t failures = state_->failures;
  uint64_t written = state_->written;
  const double end_ms = now_ms() + limit_ms;
  double stall_end_ms = now_ms() + stall_ms;
  state_->retry = true;
  state_->changed.notify_all();
  while (!state_->nothing_waits) {
    if (written != state_->written) stall_end_ms = now_ms() + stall_ms;
    written = state_->written;
    const double left_ms = std::min(stall_end_ms, end_ms) - now_ms();
    if (state_->failures != failures || left_ms <= 0) return false;
    if (state_->writes_itself())
      state_->write(lock, 1);
    else
      state_->changed.wait_for(lock, Milliseconds(left_ms));
  }
  return true;
}

OutputQueue::Counts OutputQueue::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

OutputQueue::Counts OutputQueue::waiting() const {
  const std::lock_guard lock(state_->mutex);
  Counts counts = state_->in_batch;
  for (const Entry& entry : state_->entries) count(counts, entry.kind);
  return counts;
}

int OutputQueue::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_error;
}

bool OutputQueue::idle() const { return state_->nothing_waits; }

}  // namespace lockstep
