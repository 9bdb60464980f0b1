#pragma once
// All fields of a config as text, and where two configs differ: for ranks, which must have the same
// one, and for runs that go on from a checkpoint.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// What it means for a run that goes on from a checkpoint when a field has another value: see Change
// in schema/options.proto.
enum class ChangeRule { kDecides, kTold, kFree };

struct FieldValue {
  std::string path;   // "schedule.lr"; of the choice among sections "optimizer"
  std::string value;  // as a config has it; of a choice the section's name
  ChangeRule rule = ChangeRule::kDecides;
  bool per_rank = false;  // ranks may have other values
};

// The values of all fields that apply, in the order of the schema.
std::vector<FieldValue> field_values(const RunConfig& config);

struct FieldChange {
  std::string path, before, now;  // values; "not given" where there is none
  ChangeRule rule = ChangeRule::kDecides;
};

// Where `now` differs from `before`, in the order of the schema. Of a section that only one of them
// has the section is named, not its fields.
std::vector<FieldChange> differences(const RunConfig& before, const RunConfig& now);

// Whether `path` is one of `names`, or lies in a section that is.
bool is_named(const std::string& path, const std::vector<std::string>& names);

}  // namespace lockstep
