#pragma once
// metrics.jsonl of the run folder.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "runtime/metrics/buffered_file.h"
#include "runtime/metrics/step_record.h"

namespace lockstep::metrics {

// Writes metrics.jsonl: one JSON object per line, with fields named as in StepRecord. A number that
// is NaN or infinite is written as null, and the line then has "nonfinite": true. append() takes
// about a microsecond and never allocates.
//
// Every step has a line up to step 1,000,000, then every 10th up to 10 million, every 100th up to
// 100 million, and so on. Steps with an evaluation, a hash (and so a checkpoint, or the last step)
// or a number that is not finite always have a line. The next line after skipped steps has their
// number and the sum of their step_ms: left_out_steps, left_out_ms. Their energy is added to that
// of the next line that has some.
class JsonlWriter {
 public:
  // Opens `path` to continue after step `resume_step`: lines of later steps, and an incomplete last
  // line, are removed. A run from the beginning passes -1, and then nothing is kept. `check` is
  // called just before each change of the file; if it throws, nothing is changed. Throws IoError.
  JsonlWriter(const std::filesystem::path& path,
              int64_t resume_step,
              const std::function<void()>& check = {});
  void append(const StepRecord& record);
  // Passes all lines to the system. Call it at checkpoints and at the end.
  void flush() { file_.flush(); }
  // The last flush. Logs how many lines are missing.
  void finish() { file_.finish(); }

 private:
  BufferedFile file_;
  int64_t left_out_steps_ = 0;  // since the last line
  double left_out_ms_ = 0;
  double left_out_joules_ = 0;
};

// The newest energy_total_joules in a metrics.jsonl; 0 if there is none. Throws IoError.
double energy_total_in(const std::filesystem::path& path);

}  // namespace lockstep::metrics
