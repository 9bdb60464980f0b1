#pragma once
// How often a training uses each sample.

#include <cstdint>
#include <string>

#include "runtime/config/run_config.h"

namespace lockstep::run {

// A warning if a step takes samples several times because there are fewer than train.global_batch,
// or if the run is more than 1.5 times the epochs that were asked for, because its last step is
// never a part of a batch; otherwise empty. `train`: with the number of steps. `epochs`:
// train.epochs before it became steps, or 0. `drawn`: samples are drawn with replacement, as by
// data.balance_classes.
std::string sample_use_warning(const TrainConfig& train,
                               double epochs,
                               int64_t samples,
                               bool drawn);

}  // namespace lockstep::run
