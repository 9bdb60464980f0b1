#pragma once
// How each parameter is trained, as the config says: train.groups and train.layer_lr_decay.

#include <string>

#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep {

// Sets the rate, the weight decay, the first elements and whether it is frozen of every parameter of a
// forward graph of which a group counts, the first that matches its name; then multiplies the rates by layer_lr_decay
// to the power of the levels that lie between a parameter and the head. Running statistics stay as
// they are. Throws ConfigError with the field's path: of a group that matches no parameter, and of a
// decay where the model, at `section` of the config, has no blocks.
void set_parameter_groups(const TrainConfig& train, const std::string& section, Graph& graph);

// Throws ConfigError where nothing is left to train; `field` has frozen it.
void check_some_train(const Graph& graph, const std::string& field);

}  // namespace lockstep
