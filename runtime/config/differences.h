#pragma once
// The values of a config's fields as text, and the fields in which two configs differ. Used for
// ranks, which must have the same config, and for runs that resume from a checkpoint.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// What it means for a run that resumes from a checkpoint if a field has another value: see Change
// in schema/options.proto.
enum class ChangeRule { kDecides, kLogged, kFree };

struct FieldValue {
  std::string path;   // "schedule.lr"; for the choice among sections, "optimizer"
  std::string value;  // as written in a config; for a choice, the section's name
  ChangeRule rule = ChangeRule::kDecides;
  bool per_rank = false;  // ranks may have different values
  bool is_path = false;
};

// The values of all fields that apply, in the order of the schema.
std::vector<FieldValue> field_values(const RunConfig& config);

struct FieldChange {
  std::string path, before, now;  // values; "not given" if there is none
  ChangeRule rule = ChangeRule::kDecides;
};

// The fields in which `now` differs from `before`, in the order of the schema. If only one of them
// has a section, the section is listed and not its fields. Paths are compared as same_path() does.
std::vector<FieldChange> differences(const RunConfig& before, const RunConfig& now);

// Whether `path` is one of `names` or is inside a section that is.
bool is_named(const std::string& path, const std::vector<std::string>& names);

}  // namespace lockstep::config
