#include "launcher/processes/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "runtime/base/file.h"
#include "runtime/base/stop_signals.h"

namespace lockstep::launcher {
namespace {

struct PipeEnds {
  Pipe read, write;
};

PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("make", "a pipe", errno);
  return {Pipe(ends[0]), Pipe(ends[1])};
}

// The words or variables as exec() takes them. They point into `texts`.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// This process's variables, as changed by the order; later ones in `set` override earlier ones.
std::vector<std::string> environment_of(const ChildOrder& order) {
  const auto name_of = [](std::string_view variable) {
    return variable.substr(0, variable.find('='));
  };
  std::map<std::string, std::string, std::less<>> by_name;
  for (char** variable = environ; *variable != nullptr; ++variable)
    by_name.emplace(name_of(*variable), *variable);
  for (const std::string& name : order.unset) by_name.erase(name);
  for (const std::string& variable : order.set)
    by_name.insert_or_assign(std::string(name_of(variable)), variable);
  std::vector<std::string> variables;
  for (const auto& [name, variable] : by_name) variables.push_back(variable);
  return variables;
}

// The child's side of the fork; does not return. Other threads may have held any lock at the fork,
// so it calls only async-signal-safe functions.
[[noreturn]] void exec_child(const ChildOrder& order,
                             char** words,
                             char** variables,
                             pid_t parent,
                             const std::array<int, 3>& streams) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, order.last_signal);
  if (getppid() != parent) _exit(127);  // the parent has ended before
  restore_signals();
  for (int stream = 0; stream < 3; ++stream) dup2(streams[static_cast<size_t>(stream)], stream);
  if (order.folder.empty() || chdir(order.folder.c_str()) == 0) execvpe(words[0], words, variables);
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", words[0], strerror(errno));
  _exit(127);
}

}  // namespace

Pipe::Pipe(Pipe&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), unwritten_(std::move(other.unwritten_)) {}

Pipe& Pipe::operator=(Pipe&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(unwritten_, other.unwritten_);
  return *this;
}

void Pipe::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  unwritten_.clear();
}

std::string Pipe::read() {
  constexpr size_t kMaxBytes = 65536;
  std::string bytes(kMaxBytes, '\0');
  const ssize_t count =
      uninterrupted([&] { return ::read(descriptor_, bytes.data(), bytes.size()); });
  if (count == 0 || (count < 0 && errno != EAGAIN)) close();
  bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return bytes;
}

void Pipe::write(std::string_view bytes) {
  if (!is_open()) return;
  unwritten_ += bytes;
  flush();
}

void Pipe::flush() {
  size_t written = 0;
  while (is_open() && written < unwritten_.size()) {
    const ssize_t count = uninterrupted([&] {
      return ::write(descriptor_, unwritten_.data() + written, unwritten_.size() - written);
    });
    if (count > 0) {
      written += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else {
      close();
    }
  }
  unwritten_.erase(0, std::min(written, unwritten_.size()));
}

Child start_child(const ChildOrder& order) {
  PipeEnds input, output, errors;
  if (order.with_input)
    input = make_pipe();
  else
    input.read = Pipe(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (order.log.empty()) {
    output = make_pipe();
    errors = make_pipe();
  } else {
    output.write = Pipe(open_to_write(order.log, O_WRONLY | O_CREAT | O_TRUNC));
  }
  const std::vector<std::string> environment = environment_of(order);
  std::vector<char*> words = pointers_to(order.words), variables = pointers_to(environment);
  const Pipe& to_errors = order.log.empty() ? errors.write : output.write;
  const std::array<int, 3> streams = {
      input.read.descriptor(), output.write.descriptor(), to_errors.descriptor()};
  const pid_t parent = getpid();
  Child child;
  child.process = fork();
  if (child.process < 0) throw IoError("start", order.words[0], errno);
  if (child.process == 0) exec_child(order, words.data(), variables.data(), parent, streams);
  setpgid(child.process, child.process);  // in the parent too, as either may run first
  child.input = std::move(input.write);
  child.output = std::move(output.read);
  child.errors = std::move(errors.read);
  for (const Pipe* pipe : {&child.input, &child.output, &child.errors})
    if (pipe->is_open()) fcntl(pipe->descriptor(), F_SETFL, O_NONBLOCK);
  return child;
}

int code_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace lockstep::launcher
