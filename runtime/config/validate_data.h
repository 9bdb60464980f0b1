#pragma once

#include "runtime/config/model_traits.h"

namespace lockstep {

// Checks the data section by itself: files and columns that must be named, spellings, fields that
// exclude each other. Throws ConfigError.
void validate_data(const DataConfig& data);

// Checks that the model can learn from this kind of data. Throws ConfigError.
void validate_data_for_model(const DataConfig& data, const ModelTraits& model);

// Whether the source has nothing but images: those of data.cifar, data.image_folder,
// data.tar_shards and data.records. data.idx and data.synthetic give them to models that want them.
bool gives_images(const DataConfig& data);

// Whether the section gives an evaluation set; synthetic data never does.
bool has_eval_data(const DataConfig& data);

}  // namespace lockstep
