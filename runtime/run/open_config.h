#pragma once
// Stage 2 of a run's preparation: the model is opened, once for all later stages.

#include <memory>

#include "models/registry.h"
#include "runtime/config/run_config.h"

namespace lockstep::run {

// A run's config and its model.
struct OpenedConfig {
  RunConfig config;
  std::shared_ptr<const models::OpenedModel> model;  // of config.model
};

// Opens the model and, if the data need a tokenizer that the config does not name, takes that of
// the folder from which the weights come. If the folders of images have other names than the usual
// ones of the config, takes those, and logs it once (see data/images/folder_layout.h). Checks
// nothing else. `run_follows`: a run comes next, so that the model's checks bind the networks that
// the run will use, and checks that depend on the size of images wait for the data; otherwise
// check() makes all of them. Throws ConfigError.
OpenedConfig open_config(RunConfig config, bool run_follows = true);

// The same run with another config of its model, which is opened if it differs.
OpenedConfig with_model(const OpenedConfig& opened, const ModelConfig& model);

}  // namespace lockstep::run
