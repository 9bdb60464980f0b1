#pragma once
// Models that name their targets: see config::ModelTraits::targets. A format that has a single
// target serves a model with one part; formats with `targets` in their section serve any number.

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/dataset.h"

namespace lockstep::data {

// The traits with which a data section is opened and checked for the model:
// - The names that the model leaves open are filled in. Throws ConfigError if the data do not have
//   a name, or if it is not clear which target is meant.
// - If the section has a single target, in the way of models that name none: no parts, and the loss
//   and outputs of a model with this target.
config::ModelTraits traits_for_data(const DataConfig& data, const config::ModelTraits& model);

// Sets the summary's parts for a model that names its targets, if the format has not done so: its
// single target. Throws DataError if that has other extents than the model asks for.
void name_single_target(const DataConfig& data,
                        const config::ModelTraits& model,
                        OpenedData* opened);

// "(3)", "a number" for no extents.
std::string extents_in_words(const std::vector<int64_t>& extents);

// Whether data of these extents are what the part asks for.
bool has_extents(const config::TargetPart& part, const std::vector<int64_t>& extents);

// Records of named targets, one for each stored sample.
class TargetRecords {
 public:
  virtual ~TargetRecords() = default;
  // What the records consist of, with the extents of the data.
  virtual const std::vector<config::TargetPart>& parts() const = 0;
  // Writes the record of a stored sample.
  virtual void read(int64_t sample, std::byte* record) const = 0;
  virtual int64_t resident_bytes() const = 0;
};

// The samples get these records as their targets, and the summary the records' parts. A set that
// was held out of the training set has the training set's records: `eval` is null then. Does
// nothing without any records.
void use_records(const std::shared_ptr<const TargetRecords>& train,
                 const std::shared_ptr<const TargetRecords>& eval,
                 OpenedData* opened);

}  // namespace lockstep::data
