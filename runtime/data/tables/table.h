#pragma once
// Data sets from delimited text tables (CSV, TSV).

#include <cstdint>

#include "runtime/data/dataset.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep {

// What samples are for. kTraining: evaluation, too. kInputs: outputs for the evaluation's samples,
// whose targets nobody reads; their file need not have the column.
enum class TableUse { kTraining, kEvaluation, kInputs };

// Samples: x (F) f32 as TableEncoder describes, fitted on the training rows only; target as
// TableTarget describes: class label () i32, or value (1) f32. Everything is a pure function of the
// texts and the config, so all ranks see the same samples. `eval` is null when the config names no
// evaluation file. Throws DataError that names the file.
OpenedData make_table(const TableText& train,
                      const TableText* eval,
                      const DataConfig& config,
                      const TableConfig& table,
                      const ModelTraits& model,
                      TableUse use);

}  // namespace lockstep
