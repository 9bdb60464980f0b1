#pragma once
// data.balance_classes and data.group_by_length.

#include "runtime/data/dataset.h"

namespace lockstep {

// Throws ConfigError where the fields do not go with the others of the section or with the model.
void check_order(const DataConfig& data, const ModelTraits& model);

// Makes the training set of what was opened come in the order that the config asks for. Throws
// ConfigError where its samples are never padded, but are to be grouped by length.
void order_training(const DataConfig& data, OpenedData* opened);

}  // namespace lockstep
