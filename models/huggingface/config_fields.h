#pragma once
// The fields of a config.json, asked for by name, so that those that nobody asked for are found.

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Of an object that outlives this. A field that is null counts as missing. Errors are ConfigError:
// "FILE: field NAME: value is VALUE; allowed: ...".
class ConfigFields {
 public:
  // `origin` names the file, `prefix` stands before names in errors: "rope_scaling.".
  ConfigFields(const Json& object, std::string origin, std::string prefix = "");

  bool has(const std::string& name) { return find(name) != nullptr; }
  // Whether the field is there and null.
  bool is_null(const std::string& name) const;
  int64_t integer(const std::string& name);  // must be there
  int64_t integer(const std::string& name, int64_t otherwise);
  double number(const std::string& name);  // must be there
  double number(const std::string& name, double otherwise);
  bool boolean(const std::string& name, bool otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  std::vector<std::string> texts(const std::string& name);  // none where it is missing
  // A number, or those of a list; none where it is missing.
  std::vector<double> numbers(const std::string& name);
  std::vector<std::string> names(const std::string& name);  // of an object's members
  // The fields of an object; missing: of one without any.
  ConfigFields object(const std::string& name);
  // The activation of that name, of Hugging Face's names for them.
  Activation activation(const std::string& name, Activation otherwise);

  // Says that the field has been seen, whatever it is.
  void pass_over(std::initializer_list<const char*> names);
  // Refuses the field's value, whatever it is.
  [[noreturn]] void refuse(const std::string& name, const std::string& allowed) const;
  // Refuses a field that is there, is none of those asked for, and is none that every config has and
  // that changes nothing of training. `who` reads the file: "llama".
  void check_known(const std::string& who) const;

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

// The number with the fewest digits that is rounded to `value`: 0.1 for 0.1f.
Json shortest(float value);

// Sets the field to Hugging Face's name of the activation, unless it has another name of it already.
// Throws ConfigError where there is none.
void write_activation(const std::string& field, Activation activation, Json& config);

}  // namespace lockstep::huggingface
