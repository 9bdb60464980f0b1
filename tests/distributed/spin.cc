// spin PROCESS RING: lets the main thread of a process of this user run in an endless loop, at a
// moment when it does not wait for other ranks, as its flight recorder says, and is in the
// program's own code: in a library's, such as memcpy(), the thread that watches it would soon loop
// too. Exit code 77 if the system does not allow it.
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/flight_reader.h"

namespace {

// Whether the address lies in the code of the program's own file.
bool is_in_program(pid_t process, uint64_t address) {
  const std::filesystem::path folder = "/proc/" + std::to_string(process);
  const std::string program = std::filesystem::read_symlink(folder / "exe").string();
  std::ifstream maps(folder / "maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) == 2 && begin <= address &&
        address < end)
      return line.ends_with(program);
  }
  return false;
}

// Writes "jump to itself" to where the thread is. The page becomes the process's own.
bool jump_to_itself(pid_t process, user_regs_struct registers) {
  const auto at = reinterpret_cast<void*>(registers.rip);
  const long word = ptrace(PTRACE_PEEKTEXT, process, at, nullptr);
  const long jump = (word & ~0xffffL) | 0xfeebL;
  // A system call that was interrupted must not be begun again two bytes before.
  registers.orig_rax = static_cast<unsigned long long>(-1);
  return ptrace(PTRACE_SETREGS, process, nullptr, &registers) == 0 &&
         ptrace(PTRACE_POKETEXT, process, at, jump) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto process = static_cast<pid_t>(std::atoi(argv[1]));
  const auto recorder = lockstep::FlightReader::open(argv[2]);
  if (recorder == nullptr) return 2;
  for (int attempt = 0; attempt < 10'000; ++attempt) {
    if (ptrace(PTRACE_ATTACH, process, nullptr, nullptr) != 0) return 77;
    int status = 0;
    waitpid(process, &status, __WALL);
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, process, nullptr, &registers) != 0) return 77;
    const bool computes = !recorder->now().waiting && is_in_program(process, registers.rip);
    const bool done = computes && jump_to_itself(process, registers);
    ptrace(PTRACE_DETACH, process, nullptr, nullptr);
    if (computes) return done ? 0 : 77;
    usleep(200);
  }
  return 1;
}
