#include "runtime/base/mapping_fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "runtime/base/passing_error.h"
#include "runtime/base/streams.h"

namespace lockstep {

// An element of a list that a signal handler may read at any time. So elements are only added, at
// the head of the list, and never freed; a run maps few files.
struct WatchedMapping {
  const uintptr_t begin, end;
  const std::string path;
  const std::string line;  // what is printed; empty: the process continues
  const int code;          // the exit code if the file was truncated
  const int disk_code;     // the exit code if it was not: its disk failed
  std::atomic<bool> watched = true;
  WatchedMapping* next = nullptr;
};

namespace {

std::atomic<WatchedMapping*> newest = nullptr;
std::atomic_flag ending;
struct sigaction before;  // the action for SIGBUS elsewhere

const WatchedMapping* mapping_at(uintptr_t address) {
  for (const WatchedMapping* m = newest.load(std::memory_order_acquire); m != nullptr;
       m = m->next) {
    if (m->begin <= address && address < m->end && m->watched.load(std::memory_order_relaxed))
      return m;
  }
  return nullptr;
}

// Maps an empty page at an address that has no page of the file. mmap() is a plain system call, and
// so is safe in a signal handler.
bool replace_page(uintptr_t address) {
  static const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return ::mmap(reinterpret_cast<void*>(address / page_bytes * page_bytes),
                page_bytes,
                PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                -1,
                0) != MAP_FAILED;
}

bool is_cut_short(const WatchedMapping& mapping, uintptr_t address) {
  struct stat now {};
  return ::stat(mapping.path.c_str(), &now) == 0 &&
         static_cast<uintptr_t>(now.st_size) <= address - mapping.begin;
}

// Calls only functions that are safe in a signal handler.
void on_bus_error(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const WatchedMapping* const mapping = info->si_code == BUS_ADRERR ? mapping_at(address) : nullptr;
  if (mapping != nullptr && mapping->line.empty() && replace_page(address)) return;
  if (mapping != nullptr) {
    // Several threads may come here. The first one prints the line and ends the process.
    while (ending.test_and_set()) ::pause();
    print_in_handler(mapping->line);
    ::_exit(is_cut_short(*mapping, address) ? mapping->code : mapping->disk_code);
  }
  ::sigaction(number, &before, nullptr);
  // A faulting access is repeated on return and then meets the old action. A signal that another
  // process sent is not repeated, so it is raised again.
  if (info->si_code <= 0) ::raise(number);
}

bool install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, &before) == 0;
}

WatchedMapping* add(const void* data,
                    size_t bytes,
                    const std::string& path,
                    const std::string& line,
                    ExitCode code) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  auto* const mapping = new WatchedMapping{begin,
                                           begin + bytes,
                                           path,
                                           line,
                                           static_cast<int>(code),
                                           under_launch() ? kMayPassCode : static_cast<int>(code)};
  mapping->next = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(mapping->next, mapping, std::memory_order_release)) {
  }
  [[maybe_unused]] static const bool installed = install_handler();
  return mapping;
}

}  // namespace

WatchedMapping* watch_mapping(const void* data,
                              size_t bytes,
                              const std::string& path,
                              ExitCode code) {
  return add(data,
             bytes,
             path,
             fmt::format("lockstep: error: {}: the file was cut short or its disk failed while it "
                         "was mapped (SIGBUS); leave files alone while a run reads them\n",
                         path),
             code);
}

WatchedMapping* shield_mapping(const void* data, size_t bytes) {
  return add(data, bytes, "", "", ExitCode::kOk);
}

void unwatch_mapping(WatchedMapping* mapping) {
  mapping->watched.store(false, std::memory_order_relaxed);
}

}  // namespace lockstep
