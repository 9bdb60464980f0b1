// Preloaded into a program (LD_PRELOAD): makes some of its system calls on files fail.
//
//   FAILING_CALLS="CALL:FAULT:WHEN[:PART] ..."
//
// CALL is open, read, write, fsync, rename, unlinkat, mkdir or lock, or `change` for all of them
// that change what is on the disk. FAULT is a number of errno.h, `short` (half of what is written
// is written), `slowMS` (it takes so many milliseconds longer) or `kill` (the process dies before
// it). WHEN is N, every Nth call, =N, the Nth alone, or M-N, the Mth to the Nth, of those whose
// path has PART if it is given. What one thread calls counts for all.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::string call, fault, part;
  long number = 0;           // every so many calls, or
  long first = 0, last = 0;  // these
  std::atomic<long> count{0};

  bool is_about(const char* what) const {
    if (call != "change") return call == what;
    return std::strcmp(what, "read") != 0 && std::strcmp(what, "lock") != 0;
  }
  bool strikes() {
    const long now = ++count;
    return number > 0 ? now % number == 0 : first <= now && now <= last;
  }
};

enum class Fate { kGoesOn, kFails, kShort };

std::vector<Rule*> read_rules() {
  std::vector<Rule*> rules;
  const char* text = std::getenv("FAILING_CALLS");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    std::istringstream fields(word);
    Rule* rule = new Rule;  // for as long as the process lives
    std::string when;
    std::getline(fields, rule->call, ':');
    std::getline(fields, rule->fault, ':');
    std::getline(fields, when, ':');
    std::getline(fields, rule->part);
    const size_t dash = when.find('-');
    if (when[0] == '=') {
      rule->first = rule->last = std::atol(when.c_str() + 1);
    } else if (dash != std::string::npos) {
      rule->first = std::atol(when.c_str());
      rule->last = std::atol(when.c_str() + dash + 1);
    } else {
      rule->number = std::atol(when.c_str());
    }
    rules.push_back(rule);
  }
  return rules;
}

// What becomes of a call; where it fails errno is set.
Fate fate_of(const char* call, const char* path) {
  static const std::vector<Rule*>* const rules = new std::vector<Rule*>(read_rules());
  for (Rule* rule : *rules) {
    if (!rule->is_about(call)) continue;
    if (!rule->part.empty() && std::strstr(path, rule->part.c_str()) == nullptr) continue;
    if (!rule->strikes()) continue;
    if (rule->fault == "kill") raise(SIGKILL);
    if (rule->fault == "short") return Fate::kShort;
    if (rule->fault.rfind("slow", 0) == 0) {
      usleep(static_cast<useconds_t>(std::atol(rule->fault.c_str() + 4) * 1000));
      continue;
    }
    errno = std::atoi(rule->fault.c_str());
    return Fate::kFails;
  }
  return Fate::kGoesOn;
}

bool fails(const char* call, const char* path) { return fate_of(call, path) == Fate::kFails; }

// The same for a call on an open file.
Fate fate_of(const char* call, int fd) {
  char path[4096] = "";
  const int kept = errno;
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = '\0';
  errno = kept;
  return fate_of(call, path);
}

bool fails(const char* call, int fd) { return fate_of(call, fd) == Fate::kFails; }

// The whole name of a path that is looked up in an open folder.
std::string in_folder(int folder, const char* path) {
  if (folder == AT_FDCWD || path[0] == '/') return path;
  char name[4096] = "";
  const int kept = errno;
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(folder)).c_str(), name, sizeof(name) - 1);
  errno = kept;
  return std::string(name, length < 0 ? 0 : static_cast<size_t>(length)) + '/' + path;
}

template <typename Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

#define REAL(name) static auto* const call = real(&::name, #name)

extern "C" {

int open(const char* path, int flags, ...) {
  REAL(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails("open", path) ? -1 : call(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  REAL(openat);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails("open", in_folder(folder, path).c_str()) ? -1 : call(folder, path, flags, mode);
}

ssize_t read(int fd, void* data, size_t bytes) {
  REAL(read);
  return fails("read", fd) ? -1 : call(fd, data, bytes);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  const Fate fate = fate_of("write", fd);
  if (fate == Fate::kFails) return -1;
  return call(fd, data, fate == Fate::kShort ? (bytes + 1) / 2 : bytes);
}

int fsync(int fd) {
  REAL(fsync);
  return fails("fsync", fd) ? -1 : call(fd);
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return fails("rename", from) ? -1 : call(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  REAL(renameat2);
  return fails("rename", from) ? -1 : call(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return fails("mkdir", path) ? -1 : call(path, mode);
}

int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return fails("unlinkat", in_folder(folder, path).c_str()) ? -1 : call(folder, path, flags);
}

int fcntl(int fd, int command, ...) {
  REAL(fcntl);
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const bool locks = command == F_OFD_SETLK;
  return locks && fails("lock", fd) ? -1 : call(fd, command, argument);
}

}  // extern "C"
