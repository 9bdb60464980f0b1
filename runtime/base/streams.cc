#include "runtime/base/streams.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep {
namespace {

constexpr double kStallMs = 3000, kShortStallMs = 200;
constexpr double kLimitMs = 20'000;  // for a slow reader
constexpr int kHandlerMs = 1000;

std::atomic<bool> hurried = false, in_vain = false;
// The queues in use; null: none.
std::atomic<OutputQueue*> error_queue = nullptr, output_queue = nullptr;

bool are_one_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

OutputQueue::Counts lost_in(const OutputQueue& queue) {
  const OutputQueue::Counts dropped = queue.dropped(), waiting = queue.waiting();
  return {dropped.lines + waiting.lines, dropped.results + waiting.results};
}

std::string text_of_loss(const OutputQueue& queue, uint64_t lines) {
  const int error = queue.error();
  return lines == 0 ? ""
                    : fmt::format("{} line{} lost: {}",
                                  lines,
                                  lines == 1 ? " is" : "s are",
                                  error == 0 ? "nobody reads the stream" : std::strerror(error));
}

}  // namespace

OutputQueue& standard_error() {
  static OutputQueue& queue = *new OutputQueue({});
  error_queue = &queue;
  return queue;
}

OutputQueue& standard_output() {
  static OutputQueue& queue =
      are_one_file(STDOUT_FILENO, STDERR_FILENO) ? standard_error() : *new OutputQueue({});
  output_queue = &queue;
  return queue;
}

void print_log(std::string text) { standard_error().add(STDERR_FILENO, std::move(text)); }

void print_result(std::string text) {
  standard_output().add(STDOUT_FILENO, std::move(text), OutputQueue::Kind::kResult);
}

void queue_results() { standard_output(); }

bool results_are_queued() { return output_queue != nullptr; }

bool write_patiently(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(descriptor, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<size_t>(wrote));
    } else if (errno == EAGAIN) {
      pollfd entry{descriptor, POLLOUT, 0};
      ::poll(&entry, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool flush_streams() {
  double stall_ms = hurried || in_vain ? kShortStallMs : kStallMs;
  const double begin_ms = now_ms();
  OutputQueue* const errors = error_queue;
  OutputQueue* const results = output_queue;
  bool written = errors == nullptr || errors->flush(stall_ms, kLimitMs);
  if (results != nullptr && results != errors) {
    // The two queues' threads have worked at the same time, so the limit holds for both together.
    if (!written) stall_ms = std::max(0.0, stall_ms - (now_ms() - begin_ms));
    written = results->flush(stall_ms, kLimitMs) && written;
  }
  in_vain = !written;
  return written;
}

void hurry_streams() { hurried = true; }

std::string lost_results() {
  OutputQueue* const queue = output_queue;
  return queue == nullptr ? "" : text_of_loss(*queue, lost_in(*queue).results);
}

std::string lost_log_lines() {
  OutputQueue* const queue = error_queue;
  if (queue == nullptr) return "";
  const OutputQueue::Counts lost = lost_in(*queue);
  return text_of_loss(*queue, lost.lines - lost.results);
}

void print_in_handler(std::string_view text) {
  constexpr int kStepMs = 10;
  const OutputQueue* const queue = error_queue;
  for (int waited = 0; queue != nullptr && !queue->idle() && waited < kHandlerMs; waited += kStepMs)
    ::poll(nullptr, 0, kStepMs);
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&entry, 1, kHandlerMs) <= 0) return;
  [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace lockstep
