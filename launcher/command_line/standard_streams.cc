#include "launcher/command_line/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/streams.h"

namespace lockstep::launcher {
namespace {

bool output_closed = false;
int output_error = 0;  // of the last failed attempt

ssize_t write_output(void*, const char* bytes, size_t size) {
  if (!output_closed && write_patiently(STDOUT_FILENO, {bytes, size}))
    return static_cast<ssize_t>(size);
  output_error = output_closed ? EBADF : errno;
  return 0;  // an error, for stdio
}

// The C library's own stream loses output that a non-blocking descriptor does not take.
void replace_output_stream() {
  cookie_io_functions_t functions{};
  functions.write = write_output;
  std::FILE* const stream = ::fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return;
  if (::isatty(STDOUT_FILENO) == 1) std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stdout = stream;
}

}  // namespace

void prepare_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    ::open("/dev/null", O_RDWR);  // takes the lowest free number
    if (fd == STDOUT_FILENO) output_closed = true;
  }
  replace_output_stream();
}

bool output_was_closed() { return output_closed; }

std::string output_failure() {
  const std::string failure = "cannot write to the standard output";
  // What was printed may still be in flight to a full disk.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return failure + (output_error == 0 ? "" : std::string(": ") + std::strerror(output_error));
  flush_streams();
  const std::string lost = lost_results();
  return lost.empty() ? "" : failure + ": " + lost;
}

}  // namespace lockstep::launcher
