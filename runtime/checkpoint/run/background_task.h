#pragma once
// Work on a thread of its own, one piece at a time.

#include <chrono>
#include <functional>
#include <future>
#include <system_error>

namespace lockstep::checkpoint {

// Its destructor waits for the current work.
class BackgroundTask {
 public:
  // Starts the work; earlier work must be finished. If no thread can be created, the work is done
  // here and now.
  void start(const std::function<void()>& work) {
    try {
      work_ = std::async(std::launch::async, work);
    } catch (const std::system_error&) {
      run(work);
    }
  }
  // The same on the calling thread.
  void run(const std::function<void()>& work) {
    std::packaged_task<void()> task(work);
    work_ = task.get_future();
    task();
  }
  // Whether work is in progress.
  bool under_way() const {
    return work_.valid() && work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  // Waits for the current work, if any.
  void wait() const {
    if (work_.valid()) work_.wait();
  }
  // Waits, then throws, once, what the work has thrown.
  void finish() {
    if (work_.valid()) work_.get();
  }

 private:
  std::future<void> work_;
};

}  // namespace lockstep::checkpoint
