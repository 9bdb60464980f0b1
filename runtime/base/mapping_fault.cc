#include "runtime/base/mapping_fault.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace lockstep {

// An element of a list that a signal handler may read at any time: elements are added at its head
// and, as the files of a run are few, never freed.
struct WatchedMapping {
  const uintptr_t begin, end;
  const std::string line;  // what is written
  const int code;
  std::atomic<bool> watched = true;
  WatchedMapping* next = nullptr;
};

namespace {

std::atomic<WatchedMapping*> newest = nullptr;
std::atomic_flag ending;
struct sigaction before;  // whose turn it is elsewhere

const WatchedMapping* mapping_at(uintptr_t address) {
  for (const WatchedMapping* m = newest.load(std::memory_order_acquire); m != nullptr;
       m = m->next) {
    if (m->begin <= address && address < m->end && m->watched.load(std::memory_order_relaxed))
      return m;
  }
  return nullptr;
}

// Calls nothing that is not safe in a signal handler.
void on_bus_error(int number, siginfo_t* info, void*) {
  const WatchedMapping* const mapping = info->si_code == BUS_ADRERR
                                            ? mapping_at(reinterpret_cast<uintptr_t>(info->si_addr))
                                            : nullptr;
  if (mapping != nullptr) {
    // Several threads may come here; the first one speaks and ends them all.
    while (ending.test_and_set()) ::pause();
    [[maybe_unused]] const ssize_t wrote =
        ::write(STDERR_FILENO, mapping->line.data(), mapping->line.size());
    ::_exit(mapping->code);
  }
  ::sigaction(number, &before, nullptr);
  // A bad access is repeated on return and meets the old action; a signal that was sent is not.
  if (info->si_code <= 0) ::raise(number);
}

bool install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, &before) == 0;
}

}  // namespace

WatchedMapping* watch_mapping(const void* data,
                              size_t bytes,
                              const std::string& path,
                              ExitCode code) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  auto* const mapping = new WatchedMapping{
      begin,
      begin + bytes,
      fmt::format("lockstep: error: {}: the file was cut short or its disk failed while it was "
                  "mapped (SIGBUS); leave files alone while a run reads them\n",
                  path),
      static_cast<int>(code)};
  mapping->next = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(mapping->next, mapping, std::memory_order_release)) {
  }
  [[maybe_unused]] static const bool installed = install_handler();
  return mapping;
}

void unwatch_mapping(WatchedMapping* mapping) {
  mapping->watched.store(false, std::memory_order_relaxed);
}

}  // namespace lockstep
