#pragma once
// Event files for TensorBoard.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/metrics/buffered_file.h"
#include "runtime/metrics/step_record.h"

namespace lockstep {

// Writes scalars for TensorBoard to FOLDER/events.out.tfevents.<time>.<host>.<pid>:
// train/{loss,lr,grad_norm}, throughput/{samples_per_s,tokens_per_s,mfu},
// time/{step,compute,comm_exposed,data_wait,optimizer}_ms and eval/{loss,accuracy,top5_accuracy,perplexity}.
class TensorBoardWriter {
 public:
  // Training scalars are written for every step of a run of up to 10,000, in a longer one for every
  // second, third, ... so that there are at most so many; evaluations always. Where there are event
  // files already, TensorBoard is told to hide what they have for steps after `resume_step`.
  // `check`: see BufferedFile.
  TensorBoardWriter(const std::filesystem::path& folder,
                    int64_t resume_step,
                    int64_t total_steps,
                    const std::function<void()>& check = {});
  void append(const StepRecord& record);
  // Writes the last step, if append() has not, and logs what is missing.
  void finish();
  void flush() { file_.flush(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const StepRecord& record, bool training);

  bool follows_another_;  // there were event files in the folder
  std::filesystem::path path_;
  BufferedFile file_;
  int64_t every_;                   // steps from one with training scalars to the next
  std::optional<StepRecord> last_;  // not written, or only its evaluation
};

}  // namespace lockstep
