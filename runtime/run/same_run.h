#pragma once
// What the ranks of a run must have in common. Compared before their devices are opened.

#include "collectives/communicator.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"

namespace lockstep::run {

// Throws the same AgreedError on all ranks if they have read different configs: it names the first
// field, both values and the ranks. Fields that concern one rank alone may differ.
void check_same_config(collectives::Communicator& communicator, const RunConfig& config);

// Computes the checksums of the summary. Throws DataError if data cannot be read.
void add_checksums(data::OpenedData& data);
// As check_same_config(), for the data that the ranks have opened: sizes, classes, checksums.
void check_same_data(collectives::Communicator& communicator, const data::DataSummary& summary);

}  // namespace lockstep::run
