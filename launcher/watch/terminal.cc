#include "launcher/watch/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "runtime/base/stop_signals.h"
#include "runtime/base/streams.h"
#include "runtime/base/time.h"
#include "runtime/metrics/progress.h"

namespace lockstep::watch {
namespace {

// The alternate screen, no cursor, long lines cut off instead of wrapped; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H", kEraseRest = "\x1b[K", kEraseBelow = "\x1b[J";

sigset_t taken_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : stop_signals()) sigaddset(&set, number);
  for (const int number : {SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&set, number);
  return set;
}

int take_signals() {
  const sigset_t set = taken_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

bool Terminal::is_there() { return metrics::terminal_columns(STDOUT_FILENO) > 0; }

Terminal::Size Terminal::size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

Terminal::Terminal() : signals_(take_signals()) {
  if (signals_.fd < 0) throw IoError("open", "a descriptor of signals", errno);
  termios keys{};
  if (::tcgetattr(STDIN_FILENO, &keys) == 0) keys_ = keys;
  enter();
}

Terminal::~Terminal() {
  leave();
  const sigset_t set = taken_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void Terminal::enter() {
  if (keys_) {
    termios keys = *keys_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
  }
  write_patiently(STDOUT_FILENO, kEnter);
}

void Terminal::leave() {
  write_patiently(STDOUT_FILENO, kLeave);
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*keys_);
}

// As Ctrl-Z does with other programs, but with the terminal as it was meanwhile.
void Terminal::stop() {
  leave();
  ::raise(SIGSTOP);
  enter();
}

void Terminal::draw(const std::vector<std::string>& lines) {
  std::string text(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    text.append(kEraseRest).append(lines[i]);  // behind a full line it would take a character
  }
  text += kEraseBelow;
  write_patiently(STDOUT_FILENO, text);
}

Terminal::Event Terminal::wait(double seconds) {
  const double end_ms = now_ms() + 1000 * seconds;
  while (true) {
    pollfd entries[] = {{signals_.fd, POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const double left_ms = end_ms - now_ms();
    if (left_ms <= 0) return Event::kTime;
    ::poll(entries, 2, static_cast<int>(left_ms) + 1);
    signalfd_siginfo taken{};
    if (::read(signals_.fd, &taken, sizeof(taken)) == sizeof(taken)) {
      const int number = static_cast<int>(taken.ssi_signo);
      if (number == SIGTSTP) stop();
      if (number == SIGTSTP || number == SIGWINCH) return Event::kResize;
      signal_ = number;
      return Event::kQuit;
    }
    char key = 0;
    if (entries[1].revents == 0) continue;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got == 1 && (key == 'q' || key == 'Q')) return Event::kQuit;
    if (got > 0) continue;
    signal_ = SIGHUP;  // the terminal is gone
    return Event::kQuit;
  }
}

}  // namespace lockstep::watch
