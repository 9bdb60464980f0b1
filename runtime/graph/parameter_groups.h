#pragma once
// How each parameter is trained, according to train.groups and train.layer_lr_decay.

#include <string>

#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep::graph {

// Sets learning rate, weight decay, initial value and `frozen` of the parameters of a forward
// graph, from the first group that matches the parameter's name. Then multiplies the rates by
// layer_lr_decay to the power of the number of levels between a parameter and the head. Running
// statistics are not changed. Throws ConfigError with the field's path if a group matches no
// parameter, or if a decay is set but the model, at `section` of the config, has no blocks.
void set_parameter_groups(const TrainConfig& train, const std::string& section, Graph& graph);

// Throws ConfigError if no parameter is left to train; `field` is the field that has frozen them.
void require_some_trained(const Graph& graph, const std::string& field);

}  // namespace lockstep::graph
