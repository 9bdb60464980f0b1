// Helper of tests/tools/check_tensorboard.py: tensorboard_tool FOLDER writes what a run of 30 steps
// leaves that was interrupted after step 24 and resumed from a checkpoint of step 20; the loss is
// 1 / step, plus 10 before the interruption.

#include <unistd.h>

#include "runtime/metrics/tensorboard.h"

namespace {

void run(const char* folder, int64_t first, int64_t last, double extra_loss) {
  // Longer than what the file's buffer has for a record.
  std::string config = "name: \"a run\"\n";
  for (int i = 0; i < 1000; ++i) config += "hidden: 16\n";
  lockstep::metrics::TensorBoardWriter writer(
      folder,
      first - 1,
      30,
      {},
      {.config = config, .hparams = {{"schedule.lr", 0.5}, {"optimizer", "adamw"}}});
  for (int64_t step = first; step <= last; ++step) {
    lockstep::metrics::StepRecord record;
    record.step = step;
    record.loss = 1.0 / static_cast<double>(step) + extra_loss;
    record.lr = 0.5;
    record.tokens_per_s = 1000;
    if (step == 22 || step == 30) {
      record.eval_loss = 0.25 + extra_loss;
      record.eval_accuracy = 0.75;
    }
    writer.append(record);
  }
  if (last == 30) writer.finish(/*done=*/true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  run(argv[1], 1, 24, 10);
  ::sleep(1);  // file names are ordered by the second
  run(argv[1], 21, 30, 0);
}
