#pragma once
// Work on a thread of its own, one piece at a time.

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace lockstep {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  // Waits for the current work.
  ~BackgroundTask();

  // Starts the work; earlier work must be finished. If no thread can be created, the work is done
  // here and now.
  void start(std::function<void()> work);
  // The same on the calling thread.
  void run(const std::function<void()>& work);
  // Whether work is in progress.
  bool under_way() const { return !done_.load(std::memory_order_acquire); }
  // Waits for the current work, if any.
  void wait();
  // Waits, then throws, once, what the work has thrown.
  void finish();

 private:
  std::thread thread_;
  std::atomic<bool> done_{true};
  std::exception_ptr error_;  // owned by the thread until done_
};

}  // namespace lockstep
