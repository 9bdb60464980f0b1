#pragma once
// Work on a thread of its own, one piece after the other.

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
  // Waits for the work under way.
  ~BackgroundTask();

  // Begins; the work before must be finished. Where no thread can be had it is done here and now.
  void start(std::function<void()> work);
  // The same on the calling thread.
  void run(const std::function<void()>& work);
  bool under_way() const { return !done_.load(std::memory_order_acquire); }
  // Waits for the work under way, if any.
  void wait();
  // Waits, and throws, once, what the work has thrown.
  void finish();

 private:
  std::thread thread_;
  std::atomic<bool> done_{true};
  std::exception_ptr error_;  // the thread's until done_
};

}  // namespace lockstep
