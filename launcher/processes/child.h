#pragma once
// The one way to start another program.

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launcher {

// A non-blocking end of a pipe; the destructor closes it.
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
  // Reads what is available; closes itself at the end of the stream.
  std::string read();
  // Writes what fits and keeps the rest for flush(); closes itself if nobody reads the pipe any
  // more.
  void write(std::string_view bytes);
  void flush();
  // Bytes that are kept for flush().
  size_t unwritten() const { return unwritten_.size(); }

 private:
  int descriptor_ = -1;
  std::string unwritten_;
};

struct ChildOrder {
  std::vector<std::string> words = {};  // program, searched in PATH, and its arguments
  std::vector<std::string> set = {};    // variables, "NAME=VALUE"
  std::vector<std::string> unset = {};  // names of variables
  bool with_input = false;              // standard input is a pipe; otherwise empty
  std::filesystem::path log = {};       // file for both outputs; empty: pipes
  std::filesystem::path folder = {};    // where it runs; empty: where this process does
  int last_signal = SIGKILL;            // which it gets when this process ends, in whatever way
};

// A process in its own process group. Its signal handling is the default, as under a shell.
struct Child {
  pid_t process = -1;
  Pipe input;  // its standard input
  Pipe output, errors;
};

// Throws IoError. If the program cannot be run, the child reports that on its standard error and
// exits with 127.
Child start_child(const ChildOrder& order);

// The exit code, or 128 + the signal, from waitpid()'s status.
int code_of(int wait_status);

}  // namespace lockstep::launcher
