#pragma once
// What the ranks of a run must have alike. Compared before anything is made.

#include "collectives/communicator.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"

namespace lockstep {

// Throws the same AgreedError on all ranks where they have read different configs: it names the
// first field, both values and the ranks. Fields that concern one rank alone may differ.
void check_same_config(Communicator& communicator, const RunConfig& config);

// Fills in the checksums of the summary. Throws DataError where data cannot be read.
void take_contents(OpenedData& data);
// As check_same_config(), of the data that the ranks have opened: sizes, classes, checksums.
void check_same_data(Communicator& communicator, const DataSummary& summary);

}  // namespace lockstep
