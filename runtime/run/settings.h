#pragma once
// The settings that change the memory or the time of a training, but neither its batch nor what is
// trained. Refusals for memory (fit.h) and `lockstep plan --advise` choose from them.

#include <array>
#include <string>
#include <vector>

#include "runtime/run/prepared_run.h"

namespace lockstep::run {

// Usual sizes of buckets, in MiB.
inline constexpr std::array<double, 6> kBucketMib = {1, 4, 12, 25, 50, 100};

// Other values of one field or of several.
struct Setting {
  std::vector<std::string> set;  // "train.lanes=16", as --set has them; empty: the run as it is
  bool same_bits = true;         // as the run as it is
  std::string gives_up = {};     // what it costs, if anything
};

// The values of each field that this run could have instead of its own. None if the field has no
// effect on the run. Those that cost least come first.
struct SettingChoices {
  // Powers of two times the run's own number or that of the ranks; none for networks that normalise
  // over the samples of a lane, because they would become others.
  std::vector<Setting> fewer_lanes, more_lanes;
  std::vector<Setting> zero_stages;     // in order
  std::vector<Setting> recomputations;  // of transformer blocks
  std::vector<Setting> loss_rows;       // the logits of a language model in parts
  std::vector<Setting> precisions;      // in which the device can train
  std::vector<Setting> moments;         // the type in which they are stored
  std::vector<Setting> wire_types;      // of gradients that are sent
  std::vector<Setting> buckets;         // sizes; none if comm.tune_buckets chooses
};
SettingChoices setting_choices(const PreparedRun& prepared);

// Both together.
Setting combined(const Setting& first, const Setting& second);

// "--set train.lanes=16 --set optimizer.moments=BF16".
std::string set_options(const Setting& setting);

// The same training with a setting. Throws ConfigError if it does not go with the rest of the
// config.
PreparedRun with_setting(const PreparedRun& prepared, const Setting& setting);

}  // namespace lockstep::run
