#include "runtime/train/checkpoints/background_task.h"

#include <system_error>
#include <utility>

#include "runtime/base/check.h"

namespace lockstep {

BackgroundTask::~BackgroundTask() { wait(); }

void BackgroundTask::start(std::function<void()> work) {
  LOCKSTEP_CHECK(!thread_.joinable());
  done_.store(false, std::memory_order_relaxed);
  const auto to_the_end = [this, work = std::move(work)] {
    run(work);
    done_.store(true, std::memory_order_release);
  };
  try {
    thread_ = std::thread(to_the_end);
  } catch (const std::system_error&) {
    to_the_end();
  }
}

void BackgroundTask::run(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void BackgroundTask::wait() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundTask::finish() {
  wait();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep
