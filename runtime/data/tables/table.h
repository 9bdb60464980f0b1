#pragma once
// Data sets from delimited text tables (CSV, TSV).

#include "runtime/data/dataset.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep::data {

// The purpose of a table. kTraining: training and evaluation. kEvaluation: evaluation only.
// kInputs: model outputs for the evaluation samples; the file may lack the column of targets, and
// targets that are missing or invalid are -1 (classes) or NaN (values).
enum class TableUse { kTraining, kEvaluation, kInputs };

// Samples: x (F) f32 from TableEncoder, which is fitted on the training rows only; target from
// TableTarget, a class label () i32 or a value (1) f32. All of it is a pure function of the texts
// and the config, so all ranks see the same samples. `eval`: null if the config names no evaluation
// file. Throws DataError, which names the file.
OpenedData make_table(const TableText& train,
                      const TableText* eval,
                      const DataConfig& config,
                      const TableConfig& table,
                      const config::ModelTraits& model,
                      TableUse use);

}  // namespace lockstep::data
