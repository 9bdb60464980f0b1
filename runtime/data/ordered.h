#pragma once
// Training order by class or by length: data.balance_classes and data.group_by_length.

#include "runtime/data/dataset.h"

namespace lockstep::data {

// Throws ConfigError if the two fields do not fit the rest of the section or the model.
void check_order(const DataConfig& data, const config::ModelTraits& model);

// Gives the training set of `opened` the order that the config asks for. Throws ConfigError if
// samples are to be grouped by length but are never padded.
void order_training(const DataConfig& data, OpenedData* opened);

}  // namespace lockstep::data
