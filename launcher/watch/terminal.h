#pragma once
// A terminal whose whole screen a program draws.

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep::watch {

// From construction to destruction the standard output shows another screen, without a cursor, and
// keys are read as they are pressed. Afterwards the terminal is as it was. The signals that end a
// program, or stop it for a while, are taken by wait(). Construct it while the process has no other
// thread.
class Terminal {
 public:
  // Whether the standard output is a terminal that can be drawn (TERM is not dumb).
  static bool is_there();
  // The size of the standard output's terminal, 80 x 24 if unknown.
  struct Size {
    int columns = 80, rows = 24;
  };
  static Size size();

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Replaces what is shown. Each line has at most as many characters as the terminal has columns.
  void draw(const std::vector<std::string>& lines);

  enum class Event { kTime, kResize, kQuit };
  // Waits until time is up, the size has changed or the user wants to leave: with q, or by a
  // signal, whose number signal() then has. Ctrl-Z stops the process here until it is continued.
  Event wait(double seconds);
  int signal() const { return signal_; }  // 0: none

 private:
  void enter();
  void leave();
  void stop();

  Descriptor signals_;
  std::optional<termios> keys_;  // as they were; none if the standard input is not a terminal
  int signal_ = 0;
};

}  // namespace lockstep::watch
