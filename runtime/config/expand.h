#pragma once
// Expands what exists only in the text of a config: model.from.

#include <google/protobuf/message.h>

#include "runtime/config/parse.h"

namespace lockstep::config {

// If `config`, a RunConfig, has model.from, reads that folder with `model_in`. The folder's model
// becomes the config's, except for fields that the config sets itself. If not given,
// train.init_from becomes the folder, and mean and std of data.image (or data.idx) become the
// folder's, if it has them. model.from is cleared. Throws ConfigError if the config has a section
// of another model, and passes on what model_in throws.
void expand_model(const ModelSource& model_in, google::protobuf::Message* config);

}  // namespace lockstep::config
