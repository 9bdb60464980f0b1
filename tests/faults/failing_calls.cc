// Preloaded into a program (LD_PRELOAD): makes some of its system calls on files fail.
//
//   FAILING_CALLS="CALL:ERROR:EVERY[:PART] ..."
//
// CALL is open, read, write, fsync, rename, unlinkat or lock; ERROR a number of errno.h; every
// EVERYth call fails, of those whose path has PART where it is given. What one thread calls counts
// for all.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
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
  std::string call, part;
  int error = 0;
  long every = 1;
  std::atomic<long> count{0};
};

std::vector<Rule*> read_rules() {
  std::vector<Rule*> rules;
  const char* text = std::getenv("FAILING_CALLS");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    std::istringstream fields(word);
    std::string call, error, every, part;
    std::getline(fields, call, ':');
    std::getline(fields, error, ':');
    std::getline(fields, every, ':');
    std::getline(fields, part);
    Rule* rule = new Rule;  // for as long as the process lives
    rule->call = call;
    rule->part = part;
    rule->error = std::atoi(error.c_str());
    rule->every = std::atol(every.c_str());
    rules.push_back(rule);
  }
  return rules;
}

// Sets errno and returns true where the call is to fail.
bool fails(const char* call, const char* path) {
  static const std::vector<Rule*>* const rules = new std::vector<Rule*>(read_rules());
  for (Rule* rule : *rules) {
    if (rule->call != call) continue;
    if (!rule->part.empty() && std::strstr(path, rule->part.c_str()) == nullptr) continue;
    if (++rule->count % rule->every != 0) continue;
    errno = rule->error;
    return true;
  }
  return false;
}

// The same for a call on an open file.
bool fails(const char* call, int fd) {
  char path[4096] = "";
  const int kept = errno;
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = '\0';
  errno = kept;
  return fails(call, path);
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
  return fails("open", path) ? -1 : call(folder, path, flags, mode);
}

ssize_t read(int fd, void* data, size_t bytes) {
  REAL(read);
  return fails("read", fd) ? -1 : call(fd, data, bytes);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  return fails("write", fd) ? -1 : call(fd, data, bytes);
}

int fsync(int fd) {
  REAL(fsync);
  return fails("fsync", fd) ? -1 : call(fd);
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return fails("rename", from) ? -1 : call(from, to);
}

int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return fails("unlinkat", path) ? -1 : call(folder, path, flags);
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
