#include "runtime/run/same_run.h"

#include "collectives/agree/agreement.h"
#include "runtime/base/checksum.h"
#include "runtime/config/differences.h"

namespace lockstep::run {

void check_same_config(collectives::Communicator& communicator, const RunConfig& config) {
  std::vector<collectives::Fact> facts;
  for (const config::FieldValue& field : config::field_values(config)) {
    if (!field.per_rank) facts.push_back({field.path, field.value});
  }
  collectives::require_same_facts(communicator, facts, "all ranks must be given the same config");
}

void add_checksums(data::OpenedData& data) {
  if (data.train != nullptr) data.summary.train_checksum = data.train->checksum();
  if (data.eval != nullptr) data.summary.eval_checksum = data.eval->checksum();
}

void check_same_data(collectives::Communicator& communicator, const data::DataSummary& summary) {
  const std::vector<collectives::Fact> facts = {
      {"the number of training samples", std::to_string(summary.train_samples)},
      {"the number of evaluation samples", std::to_string(summary.eval_samples)},
      {"the number of features", std::to_string(summary.features)},
      {"the number of classes", std::to_string(summary.classes)},
      {"the number of target columns", std::to_string(summary.target_columns)},
      {"the checksum of the training data", to_hex(summary.train_checksum)},
      {"the checksum of the evaluation data", to_hex(summary.eval_checksum)}};
  collectives::require_same_facts(communicator, facts, "all ranks must read the same data");
}

}  // namespace lockstep::run
