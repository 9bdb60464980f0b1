#pragma once
// Event files for TensorBoard.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/metrics/buffered_file.h"
#include "runtime/metrics/step_record.h"

namespace lockstep::metrics {

// What TensorBoard shows of a run besides its scalars.
struct TensorBoardRun {
  std::string config;  // its text; empty: nothing is shown
  // For the table of hyperparameters, which compares runs: all runs should have the same names.
  std::vector<std::pair<std::string, std::variant<double, std::string>>> hparams = {};
};

// Writes scalars for TensorBoard to FOLDER/events.out.tfevents.<time>.<host>.<pid>:
// train/{loss,lr,grad_norm}, throughput/{samples_per_s,tokens_per_s,mfu},
// time/{step,compute,comm_exposed,straggler,data_wait,optimizer}_ms and
// eval/{loss,accuracy,top5_accuracy,perplexity} and the task metrics, and on GPUs gpu/ and the
// names of kDeviceNumbers and kDeviceCounts without their "gpu_". The config is the text "config",
// and hyperparameters are those of the plugin "hparams".
class TensorBoardWriter {
 public:
  // A run of up to 10,000 steps has training scalars for every step; a longer one for every second,
  // third, ... step, so that there are at most 10,000. Evaluations are always written. If the
  // folder has event files already, an event tells TensorBoard to hide their steps after
  // `resume_step`. `check`: see BufferedFile.
  TensorBoardWriter(const std::filesystem::path& folder,
                    int64_t resume_step,
                    int64_t total_steps,
                    const std::function<void()>& check = {},
                    const TensorBoardRun& run = {});
  void append(const StepRecord& record);
  // Writes the last step, if append() has not, and that the run is `done`; logs what is missing.
  void finish(bool done = false);
  void flush() { file_.flush(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const StepRecord& record, bool training);
  void describe(const TensorBoardRun& run, int64_t step);

  bool has_older_events_;   // the folder already had event files
  bool describes_ = false;  // the end of the run is to be written, too
  std::filesystem::path path_;
  BufferedFile file_;
  int64_t every_;                   // steps between two with training scalars
  std::optional<StepRecord> last_;  // not written yet, or only its evaluation
};

}  // namespace lockstep::metrics
