#pragma once
// Checks of the config that need to know the format of its data. They open no file.

#include "runtime/config/model_traits.h"

namespace lockstep {

// Checks the data section by itself (spellings, fields that exclude each other), and what other
// sections ask of it. Throws ConfigError.
void check_data(const RunConfig& config);

// Checks that the model can learn from this kind of data. Throws ConfigError.
void check_data_for_model(const DataConfig& data, const ModelTraits& model);

}  // namespace lockstep
