#pragma once
// data.eval_fraction: which of the training samples are held out for evaluation.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/run_config.h"

namespace lockstep::data {

// The share of the training data that is held out. Whether a sample is depends on the share and on
// the sample's name or index alone: not on seed, ranks, or the other samples. So all ranks choose
// the same samples, and so do `train`, `eval` and `predict`; a file that is added to a folder of
// images moves no other one from set to set. With a larger share, the samples of the smaller one
// stay held out.
struct HeldOut {
  float share = 0;         // 0: nothing is held out
  std::string field = {};  // that gives the share: "data.eval_fraction"

  explicit operator bool() const { return share > 0; }
  // Whether the sample, record or document with this index, or the file of this name, is held out.
  bool takes(int64_t index) const;
  bool takes(std::string_view name) const;

  // "data.eval_fraction of 0.1", for messages.
  std::string text() const;
  // Throws DataError unless some of all samples are held out, but not all. `what`: "training
  // samples", for example. `where`: the file or section, for the message.
  void require_parts(int64_t held_out,
                     int64_t all,
                     const std::string& what,
                     const std::string& where) const;
  // "data.eval_fraction of 0.1 holds out 37 of 367 training samples", for the log.
  std::string describe(int64_t held_out, int64_t all, const std::string& what) const;
};

// What a data section with this source holds out, whether or not it names evaluation data, which
// then take the place of what is held out. A source may have a field eval_fraction, the older name.
template <typename Source>
HeldOut held_out_by(const DataConfig& data, const Source& source) {
  if constexpr (requires { source.eval_fraction; })
    if (data.eval_fraction == 0 && source.eval_fraction > 0)
      return {source.eval_fraction,
              "data." + config::name_of(decltype(DataConfig::source)(source)) + ".eval_fraction"};
  return {data.eval_fraction, "data.eval_fraction"};
}
HeldOut held_out_by(const DataConfig& data);

// The end of a message about evaluation data that are not there: how to do without. `field`: names
// them, with or without "data." before it. Empty if the field names training data.
std::string eval_remedy_for(std::string_view field);

// Throws ConfigError if the two names of the field have different values or, for a training, if
// something is held out although the source names evaluation data.
void check_held_out(const DataConfig& data, bool trains);

}  // namespace lockstep::data
