#pragma once
// All checks of a config that need no data. They run before anything else is opened, and
// `lockstep config CONFIG --check` runs them alone. All throw ConfigError.
//
// The values of fields, and fields that exclude each other, are checked when the config is parsed:
// see config/validate.h.

#include "collectives/layout/topology.h"
#include "runtime/exec/op_set.h"
#include "runtime/run/open_data.h"

namespace lockstep::run {

// Checks the fields that depend on the model or on the format of the data. A run that does not
// train may evaluate other data than those that the training held out.
void check_config(const OpenedConfig& opened, RunPurpose purpose = RunPurpose::kTrain);

// Checks what a run for this purpose requires of its ranks, as they are placed, and of their
// device.
void check_for_device(const OpenedConfig& opened,
                      const collectives::Topology& placed,
                      RunPurpose purpose,
                      const exec::OpSet& ops);

// Checks the fields that need several samples in a lane.
void check_samples_of_lanes(const TrainConfig& train);

// Checks train.class_weights: there must be none if there are no classes and, once the number of
// outputs is known, one for each class. The same for train.pos_weight and yes-or-no answers.
void check_class_weights(const TrainConfig& train, const config::ModelTraits& traits);

}  // namespace lockstep::run
