#pragma once
// A child process with pipes for its standard streams.

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// The end of a pipe, which does not block; closes it.
class Pipe {
 public:
  Pipe() = default;
  explicit Pipe(int descriptor) : descriptor_(descriptor) {}
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&& other) noexcept;
  ~Pipe() { close(); }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();
  // What is there to read now; closes itself at the end.
  std::string read();
  // Writes what fits now, and keeps the rest for flush(); closes itself if nobody reads any more.
  void write(std::string_view bytes);
  void flush();
  // Bytes that are kept.
  size_t unwritten() const { return unwritten_.size(); }

 private:
  int descriptor_ = -1;
  std::string unwritten_;
};

struct ChildOrder {
  std::vector<std::string> words = {};  // the program, as the PATH finds it, and its arguments
  std::vector<std::string> set = {};    // variables, as "NAME=VALUE",
  std::vector<std::string> unset = {};  // and those to leave out
  bool with_input = false;              // its standard input is a pipe; else it is empty
};

// A process in a group of its own, which gets SIGKILL when this process ends, however it does. Its
// signals are as a shell would leave them.
struct Child {
  pid_t process = -1;
  Pipe input;  // to it
  Pipe output, errors;
};

// Throws IoError. A program that cannot be run says so on its standard error and ends with 127.
Child start_child(const ChildOrder& order);

// The exit code, or 128 + the signal, of what waitpid() tells.
int code_of(int wait_status);

}  // namespace lockstep::launch
