#include "tests/fibers/host_stream.h"

#include <deque>
#include <utility>

namespace lockstep::fibers {
namespace {

std::deque<std::function<void()>> queue;
bool draining = false;

}  // namespace

void enqueue(CUstream_st* stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  ++stream->operations;
  if (stream->recording) {
    stream->unjoined = !stream->origin;
    stream->recording->push_back(std::move(work));
  } else {
    queue.push_back(std::move(work));
  }
}

void drain() {
  if (queue.empty() || draining) return;
  draining = true;
  if (guard_memory) guard_memory(true);
  while (!queue.empty()) {
    const std::function<void()> work = std::move(queue.front());
    queue.pop_front();
    work();
  }
  if (guard_memory) guard_memory(false);
  draining = false;
}

}  // namespace lockstep::fibers
