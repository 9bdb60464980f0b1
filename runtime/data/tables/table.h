#pragma once
// Data sets from delimited text tables (CSV, TSV).

#include <cstdint>

#include "runtime/data/dataset.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep {

// Samples: x (F) f32 as TableEncoder describes, fitted on the training rows only; target as
// TableTarget describes: class label () i32, or value (1) f32. Everything is a pure function of the
// files and the config, so all ranks see the same samples.
OpenedData open_table(const DataConfig& config,
                      const TableConfig& table,
                      const ModelTraits& model,
                      bool need_train);

// The same from text in memory; `eval` is null when the config names no evaluation file.
OpenedData make_table(const TableText& train,
                      const TableText* eval,
                      const DataConfig& config,
                      const TableConfig& table,
                      const ModelTraits& model,
                      bool need_train);

}  // namespace lockstep
