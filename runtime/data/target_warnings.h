#pragma once
// Warnings about the targets of opened data.

#include "runtime/config/model_traits.h"
#include "runtime/data/format.h"

namespace lockstep::data {

// Adds to the warnings of `opened` what is suspicious about its targets: class_warnings(), and
// columns of values, or tokens to predict, that are the same in all training samples. Class labels
// are counted, because they are in memory. Values and tokens are read until they differ, at most
// from 100,000 or 100 samples. Generated data are not checked. Throws DataError if the labels of
// images have more classes than the model has outputs, and do not begin at 0.
void add_target_warnings(const DataConfig& config,
                         const config::ModelTraits& model,
                         OpenedSource* opened);

}  // namespace lockstep::data
