#pragma once
// metrics.jsonl of the run folder.

#include <cstdint>
#include <filesystem>

#include "runtime/metrics/buffered_file.h"
#include "runtime/metrics/step_record.h"

namespace lockstep {

// Writes metrics.jsonl: one JSON object a line, fields named as in StepRecord. A number that is NaN
// or infinite is written as null, and the line then has "nonfinite": true. append() takes about a
// microsecond and never allocates. Throws IoError.
class JsonlWriter {
 public:
  // Opens `path` to continue after step `resume_step`: lines of later steps, and whatever follows
  // the last whole line, are cut off. A run from the beginning passes -1: nothing is kept.
  JsonlWriter(const std::filesystem::path& path, int64_t resume_step);
  void append(const StepRecord& record);
  // Hands all lines to the system: call it at checkpoints and at the end.
  void flush() { file_.flush(); }

 private:
  BufferedFile file_;
};

}  // namespace lockstep
