#include "launcher/run/summary.h"

#include <fmt/core.h>

#include "collectives/agree/agreement.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {

std::optional<int64_t> count_bad_records(const train::RunContext& parts) {
  if (parts.config.data.bad_records == BadRecords::kFail) return std::nullopt;
  int64_t read = 0;
  for (const data::Dataset* dataset : {parts.data.train.get(), parts.data.eval.get()})
    if (dataset != nullptr) read += dataset->bad_records();
  return parts.data.summary.bad_records + collectives::sum_over_ranks(parts.communicator, read);
}

std::string words_for(const std::optional<int64_t>& bad_records) {
  const int64_t count = bad_records.value_or(0);
  return count == 0 ? "" : ", " + counted(count, "bad record");
}

std::string words_for_skipped(int64_t steps, const RunConfig& config) {
  if (steps == 0) return "";
  return fmt::format(", {} skipped ({})",
                     counted(steps, "step"),
                     config::has_fp16_gradients(config) ? "gradients overflowed FP16"
                                                        : "loss or gradient was not finite");
}

}  // namespace lockstep::launcher
