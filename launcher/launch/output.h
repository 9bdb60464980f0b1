#pragma once
// What ranks write, passed on in whole lines. `launch` never waits for who reads it: streams.h.

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::launch {

class Output {
 public:
  // tag: each line begins with "[rank N] ".
  explicit Output(bool tag) : tag_(tag) {}
  // Bytes that `rank` has written to its stream 1 or 2: complete lines go to the same one of ours; a
  // line of more than 64 KiB in pieces.
  void add(int rank, int stream, std::string_view bytes);
  // The rank has ended: what is left of its last line goes too.
  void finish(int rank);
  // Whether all that ranks have written to stream 1 is passed on, after some patience.
  static bool is_written();
  // The newest 64 KiB of what all ranks wrote to stream 2.
  const std::string& errors() const { return errors_; }

 private:
  void pass(int rank, int stream, std::string_view line);

  bool tag_;
  std::map<std::pair<int, int>, std::string> begun_;  // lines, by rank and stream
  std::string errors_;
};

}  // namespace lockstep::launch
