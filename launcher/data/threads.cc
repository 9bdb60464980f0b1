#include "launcher/data/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/cpus.h"

namespace lockstep::launcher {

int choose_data_threads(int threads) { return threads > 0 ? threads : usable_cpus(); }

void for_each_in_threads(int64_t begin,
                         int64_t end,
                         int threads,
                         const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{begin};
  std::mutex mutex;
  std::exception_ptr first;
  const auto work = [&] {
    for (int64_t i = next++; i < end; i = next++) {
      try {
        body(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
        next = end;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < std::min<int64_t>(threads, end - begin); ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads can be started: these do all the work
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace lockstep::launcher
