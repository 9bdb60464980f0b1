#pragma once
// What stands in a config's text alone, replaced by what it stands for.

#include <google/protobuf/message.h>

#include "runtime/config/parse.h"

namespace lockstep {

// Where `config`, a RunConfig, has model.from: the model that `model_in` finds there becomes the
// config's, but for the fields that the config gives itself; train.init_from becomes the folder,
// unless it is given; mean and std of data.image, or of data.idx, become the folder's where they are
// not given and the folder has some; model.from is cleared. Throws ConfigError where the config has a section of
// another model, and what model_in throws.
void expand_model(const ModelSource& model_in, google::protobuf::Message* config);

}  // namespace lockstep
