#include "collectives/verdict.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

std::atomic<const std::string*> verdict{nullptr};

}  // namespace

void set_verdict(const std::string& text) {
  const std::string* none = nullptr;
  auto mine = std::make_unique<const std::string>(text);
  if (verdict.compare_exchange_strong(none, mine.get())) mine.release();  // it stays
}

bool has_verdict() { return verdict.load(std::memory_order_acquire) != nullptr; }

void check_verdict() {
  const std::string* const text = verdict.load(std::memory_order_acquire);
  if (text != nullptr) throw CommError("{}", *text);
}

void await_verdict(double seconds) {
  for (const double end_ms = now_ms() + seconds * 1000; now_ms() < end_ms;) {
    check_verdict();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace lockstep
