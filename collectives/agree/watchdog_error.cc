#include "collectives/agree/watchdog_error.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

std::atomic<const std::string*> error{nullptr};

}  // namespace

void set_watchdog_error(const std::string& text) {
  const std::string* none = nullptr;
  auto mine = std::make_unique<const std::string>(text);
  if (error.compare_exchange_strong(none, mine.get())) mine.release();  // never freed
}

bool has_watchdog_error() { return error.load(std::memory_order_acquire) != nullptr; }

void throw_watchdog_error() {
  const std::string* const text = error.load(std::memory_order_acquire);
  if (text != nullptr) throw CommError("{}", *text);
}

void await_watchdog_error(double seconds) {
  for (const double end_ms = now_ms() + seconds * 1000; now_ms() < end_ms;) {
    throw_watchdog_error();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace lockstep::collectives
