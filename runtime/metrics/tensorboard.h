#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/metrics/buffered_file.h"
#include "runtime/metrics/step_record.h"

namespace lockstep {

// Writes scalars for TensorBoard to FOLDER/events.out.tfevents.<time>.<host>.<pid>:
// train/{loss,lr,grad_norm}, throughput/{samples_per_s,tokens_per_s,mfu},
// time/{step,compute,comm_exposed,data_wait,optimizer}_ms and eval/{loss,accuracy}. Throws IoError.
class TensorBoardWriter {
 public:
  // Training scalars are written every `log_every` (>= 1) steps, evaluations always. Where there
  // are event files already, TensorBoard is told to hide what they have for steps after
  // `resume_step`.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t log_every, int64_t resume_step);
  void append(const StepRecord& record);
  void flush() { file_.flush(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool follows_another_;  // there were event files in the folder
  std::filesystem::path path_;
  BufferedFile file_;
  int64_t log_every_;
};

}  // namespace lockstep
