#pragma once
// Reads the fields of a config.json by name, and records which ones were read, so that unknown
// fields can be rejected.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// The JSON object must outlive this. A field that is null counts as missing. All errors are
// ConfigError: "FILE: field NAME: value is VALUE; allowed: ...".
class ConfigFields {
 public:
  // `origin` is the file and `prefix` the path of the object, for error messages: "rope_scaling.".
  ConfigFields(const Json& object, std::string origin, std::string prefix = "");

  bool has(const std::string& name) { return find(name) != nullptr; }
  // Whether the field is present and null.
  bool is_null(const std::string& name) const;
  int64_t integer(const std::string& name);  // throws if missing
  int64_t integer(const std::string& name, int64_t otherwise);
  double number(const std::string& name);  // throws if missing
  double number(const std::string& name, double otherwise);
  bool boolean(const std::string& name, bool otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  std::vector<std::string> texts(const std::string& name);  // empty if missing
  // A list of numbers, or a single number as a list of one. Empty if missing.
  std::vector<double> numbers(const std::string& name);
  std::vector<std::string> names(const std::string& name);  // names of an object's members
  // The fields of an object. If it is missing, an object without fields.
  ConfigFields object(const std::string& name);
  // The activation that the field names; Hugging Face's names are accepted.
  Activation activation(const std::string& name, Activation otherwise);

  // Accepts these fields, whose names are separated by blanks, with any value.
  void ignore(const std::string& names);
  // Throws ConfigError for the field's value.
  [[noreturn]] void refuse(const std::string& name, const std::string& allowed) const;
  // Throws ConfigError if the object has a field that was neither read nor ignored, except for
  // those that any config.json may have and that do not affect training. `who` names the reader in
  // the error: "llama".
  void require_known(const std::string& who) const;

 private:
  const Json* find(const std::string& name);
  template <typename T>
  T get(const std::string& name, const Json& value, const char* allowed) const;
  template <typename T>
  T needed(const std::string& name, const char* allowed);

  const Json& object_;
  std::string origin_, prefix_;
  std::set<std::string> known_;
};

// The number with the fewest digits that rounds to `value`: 0.1 for 0.1f.
Json shortest(float value);

// Sets the field to Hugging Face's name of the activation. If the field has another name of the
// same activation, it stays. Throws ConfigError if Hugging Face has no such activation.
void write_activation(const std::string& field, Activation activation, Json& config);

}  // namespace lockstep::huggingface
