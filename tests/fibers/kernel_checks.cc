// The checks that the compiler puts before the accesses of kernels (see tests/cuda/CMakeLists.txt):
// that a kernel touches only what a GPU can, and that an address is a multiple of what its type is
// aligned to. On x86-64 both go unnoticed. The functions have the names that the compiler calls.
#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fibers/cuda_on_host.h"
#include "tests/fibers/kernel_memory.h"

namespace lockstep::fibers {
namespace {

// Shared memory and constants are variables of the library that holds the kernels.
Reach find_library() {
  Reach library;
  const auto visit = [](dl_phdr_info* info, size_t, void* result) {
    const auto here = reinterpret_cast<uintptr_t>(&find_library);
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      begin = std::min<uintptr_t>(begin, info->dlpi_addr + segment.p_vaddr);
      end = std::max<uintptr_t>(end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    }
    if (here < begin || here >= end) return 0;
    *static_cast<Reach*>(result) = {begin, end - begin};
    return 1;
  };
  dl_iterate_phdr(visit, &library);
  return library;
}
const Reach library = find_library();

// What the debugger's tool makes of the kernel's address; empty without it.
std::string name_of_kernel() {
  Dl_info image;
  if (dladdr(launched.kernel, &image) == 0) return "";
  std::array<char, 512> text{};
  const auto offset =
      static_cast<const char*>(launched.kernel) - static_cast<const char*>(image.dli_fbase);
  std::snprintf(
      text.data(), text.size(), "addr2line -fCe '%s' 0x%tx 2>/dev/null", image.dli_fname, offset);
  FILE* const tool = ::popen(text.data(), "r");
  if (tool == nullptr) return "";
  const bool found = std::fgets(text.data(), text.size(), tool) != nullptr;
  ::pclose(tool);
  std::string name = found ? text.data() : "";
  return name.substr(0, name.find('\n'));
}

// "kernel NAME, launched at FILE:LINE,"
std::string launch_text() {
  return "kernel " + name_of_kernel() + ", launched at " + launched.where.file_name() + ":" +
         std::to_string(launched.where.line()) + ",";
}

[[noreturn]] void report(const char* what, uintptr_t address) {
  if (in_kernel()) {
    std::fprintf(stderr,
                 "%s %s 0x%zx, in block (%u, %u, %u), thread (%u, %u, %u)\n",
                 launch_text().c_str(),
                 what,
                 size_t{address},
                 blockIdx.x,
                 blockIdx.y,
                 blockIdx.z,
                 threadIdx.x,
                 threadIdx.y,
                 threadIdx.z);
  } else {
    std::fprintf(stderr, "the host's part of a kernel file %s 0x%zx\n", what, size_t{address});
  }
  std::abort();
}

// Kernel files hold launchers, too, which may read what the host has.
[[gnu::noinline]] void check_slowly(uintptr_t address, const char* does) {
  if (library.has(address) || !on_kernel_stack()) return;
  report((std::string(does) + " memory that is neither device nor pinned memory, at").c_str(),
         address);
}

void check(uintptr_t address, const char* does) {
  if (!reach.has(address)) [[unlikely]]
    check_slowly(address, does);
}

struct sigaction before;  // what else handles faults

// Memory that was freed, and the page past an array, are within reach, but fault.
void on_fault(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (in_kernel() && reach.bytes != UINTPTR_MAX && reach.has(address))
    report("touches memory that was freed, or that lies past an array, at", address);
  ::sigaction(number, &before, nullptr);  // the access is made again
}

[[maybe_unused]] const bool names_faults = [] {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGSEGV, &action, &before) == 0;
}();

}  // namespace

void check_pointer(const Launched& what, const void* argument) {
  if (argument == nullptr || reach.has(reinterpret_cast<uintptr_t>(argument))) return;
  launched = what;
  std::fprintf(stderr,
               "%s gets a pointer to memory that is neither device nor pinned memory: %p\n",
               launch_text().c_str(),
               argument);
  std::abort();
}

}  // namespace lockstep::fibers

using lockstep::fibers::check;

extern "C" {

#define LOCKSTEP_CHECKS_OF(bytes)                                         \
  void __asan_load##bytes##_noabort(uintptr_t at) { check(at, "reads"); } \
  void __asan_store##bytes##_noabort(uintptr_t at) { check(at, "writes"); }
LOCKSTEP_CHECKS_OF(1)
LOCKSTEP_CHECKS_OF(2)
LOCKSTEP_CHECKS_OF(4)
LOCKSTEP_CHECKS_OF(8)
LOCKSTEP_CHECKS_OF(16)
void __asan_loadN_noabort(uintptr_t at, size_t) { check(at, "reads"); }
void __asan_storeN_noabort(uintptr_t at, size_t) { check(at, "writes"); }
void __asan_handle_no_return() {}
void __asan_before_dynamic_init(const char*) {}
void __asan_after_dynamic_init() {}

// As the compiler lays out what it knows of a pointer that is used.
struct PointerUse {
  const char* file;
  uint32_t line, column;
  const struct Type {
    uint16_t kind, info;
    char name[1];
  } * type;
  unsigned char log_alignment, use;
};

void __ubsan_handle_type_mismatch_v1_abort(const PointerUse* use, uintptr_t at) {
  std::array<char, 512> what{};
  std::snprintf(what.data(),
                what.size(),
                "has in %s:%u a misaligned address for type %s, which needs %u bytes:",
                use->file,
                use->line,
                use->type->name,
                1u << use->log_alignment);
  lockstep::fibers::report(what.data(), at);
}
}
