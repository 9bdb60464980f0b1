#include "launcher/launch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/file.h"

namespace lockstep::launch {
namespace {

struct PipeEnds {
  Pipe read, write;
};

PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("make", "a pipe", errno);
  return {Pipe(ends[0]), Pipe(ends[1])};
}

void do_not_block(const Pipe& pipe) { fcntl(pipe.descriptor(), F_SETFL, O_NONBLOCK); }

void restore_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGHUP) ::signal(number, SIG_DFL);  // nohup's stays
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The child's side of the fork: does not return.
[[noreturn]] void become(const ChildOrder& order, pid_t parent, int input, int output, int errors) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it had ended before
  restore_signals();
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  for (const std::string& name : order.unset) unsetenv(name.c_str());
  for (const std::string& variable : order.set) {
    const size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : order.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", words[0], strerror(errno));
  _exit(127);
}

}  // namespace

Pipe::Pipe(Pipe&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Pipe& Pipe::operator=(Pipe&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void Pipe::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::string Pipe::read() {
  constexpr size_t kMostBytes = 65536;
  std::string bytes(kMostBytes, '\0');
  const ssize_t count =
      uninterrupted([&] { return ::read(descriptor_, bytes.data(), bytes.size()); });
  if (count == 0 || (count < 0 && errno != EAGAIN)) close();
  bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return bytes;
}

void Pipe::write(std::string_view bytes) {
  while (!bytes.empty() && is_open()) {
    const ssize_t count =
        uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd entry{descriptor_, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else {
      close();
    }
  }
}

Child start_child(const ChildOrder& order) {
  PipeEnds input, output = make_pipe(), errors = make_pipe();
  if (order.with_input)
    input = make_pipe();
  else
    input.read = Pipe(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = getpid();
  Child child;
  child.process = fork();
  if (child.process < 0) throw IoError("start", order.words[0], errno);
  if (child.process == 0)
    become(order,
           parent,
           input.read.descriptor(),
           output.write.descriptor(),
           errors.write.descriptor());
  setpgid(child.process, child.process);  // here too: whichever comes first
  child.input = std::move(input.write);
  child.output = std::move(output.read);
  child.errors = std::move(errors.read);
  if (child.input.is_open()) do_not_block(child.input);
  do_not_block(child.output);
  do_not_block(child.errors);
  return child;
}

int code_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace lockstep::launch
