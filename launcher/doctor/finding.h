#pragma once
// What `lockstep doctor` reports.

#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::doctor {

enum class Level { kOk, kWarning, kError };

const char* name_of(Level level);

struct Finding {
  Level level = Level::kOk;
  std::string name;  // "limits.nofile": the area and what was checked
  std::string text;  // what was found
  // What it costs and how to mend it, for warnings and errors.
  std::string cost = {}, remedy = {};
  std::vector<std::string> hosts = {};  // where; empty: a finding about the whole run
};

// The findings of a run, in the order of their areas. Equal ones of several hosts become one.
class Findings {
 public:
  void ok(const std::string& host, const std::string& name, const std::string& text);
  // Adds a warning or an error. An empty host means the whole run.
  void add(Level level,
           const std::string& host,
           const std::string& name,
           const std::string& text,
           const std::string& cost,
           const std::string& remedy);
  const std::vector<Finding>& all() const { return found_; }
  int count(Level level) const;

 private:
  std::vector<Finding> found_;
};

// A line for each warning and error, and one for all ok findings of an area. Of hosts with other ok
// findings the line only has the number. `hosts` is their number in the run.
std::vector<std::string> lines_of(const Findings& findings, size_t hosts);

Json to_json(const Findings& findings);

}  // namespace lockstep::doctor
