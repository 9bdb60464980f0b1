#pragma once
// Checks of the config that depend on the data format. They open no files.

#include "runtime/config/model_traits.h"

namespace lockstep::data {

// Checks the data section by itself (values, fields that exclude each other) and against the other
// sections. `trains`: false for a run that only reads evaluation data. Throws ConfigError.
void validate_data(const RunConfig& config, bool trains = true);

// Checks that the model can be trained on this kind of data. Throws ConfigError.
void require_format_for_model(const DataConfig& data, const config::ModelTraits& model);

}  // namespace lockstep::data
