#include "runtime/run/open_data.h"

#include "runtime/base/error.h"
#include "runtime/data/format.h"
#include "runtime/data/placeholder.h"

namespace lockstep::run {
namespace {

data::OpenedData open(const OpenedConfig& opened, RunPurpose purpose, bool may_assume) {
  const RunConfig& config = opened.config;
  const config::ModelTraits& model = opened.model->traits();
  if (may_assume) return data::open_data_or_placeholder(config.data, model, config.seed);
  if (purpose == RunPurpose::kPredict) return data::open_inputs(config.data, model, config.seed);
  return data::open_data(config.data, model, config.seed, purpose == RunPurpose::kTrain);
}

}  // namespace

std::shared_ptr<data::OpenedData> open_run_data(const OpenedConfig& opened,
                                                RunPurpose purpose,
                                                bool may_assume) {
  auto data = std::make_shared<data::OpenedData>(open(opened, purpose, may_assume));
  if (purpose != RunPurpose::kTrain && !data->eval)
    throw ConfigError(
        "data: names no evaluation data; give the source's eval file(s) or data.eval_fraction");
  return data;
}

}  // namespace lockstep::run
