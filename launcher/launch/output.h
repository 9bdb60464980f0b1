#pragma once
// Passes on the ranks' output in complete lines. A line of progress that rank 0 redraws ends in
// "\r" (metrics::kProgressColumnsVariable) and is redrawn here.
// `launch` never waits for its reader: see
// streams.h.

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::launch {

class Output {
 public:
  // `tag`: each line begins with "[rank N] ". `progress_columns`: of the terminal that the standard
  // error stream is; 0: rank 0 redraws nothing.
  Output(bool tag, int progress_columns) : tag_(tag), progress_columns_(progress_columns) {}
  int progress_columns() const { return progress_columns_; }
  // Takes bytes that `rank` has written to its stream 1 or 2. Complete lines go to the same stream
  // of this process; a line of more than 64 KiB goes in pieces.
  void add(int rank, int stream, std::string_view bytes);
  // The rank has ended: writes the rest of its last line too.
  void finish(int rank);
  // Whether everything that ranks have written to stream 1 is written, after waiting a while for
  // its reader.
  static bool is_written();
  // The newest 64 KiB that the ranks wrote to stream 2.
  const std::string& errors() const { return errors_; }

 private:
  void pass(int rank, int stream, std::string_view line);
  void redraw(std::string line) const;

  bool tag_;
  int progress_columns_;
  std::map<std::pair<int, int>, std::string> unfinished_;  // incomplete lines, by rank and stream
  std::string errors_;
};

}  // namespace lockstep::launch
