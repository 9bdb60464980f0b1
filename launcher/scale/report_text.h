#pragma once
// The report as JSON, CSV and Markdown.

#include <string>
#include <vector>

#include "launcher/scale/report.h"
#include "runtime/base/json.h"

namespace lockstep::scale {

// A property that all runs have in common, such as the CPU's model.
struct Fact {
  std::string key;    // in JSON
  std::string title;  // in Markdown
  Json value;
  std::string text = {};  // in Markdown, in place of the value
};

struct ModeReport {
  Mode mode = Mode::kStrong;
  std::vector<ScaleRow> rows;
  HashCheck hashes;
};

struct Report {
  std::string name;  // of the config
  std::vector<Fact> facts;
  std::string incomplete;  // what is missing, and why; empty if the report is complete
  std::string caution;     // sentences on what makes the figures unreliable; may be empty
  std::vector<ModeReport> modes;
  std::vector<MeasuredRun> runs;  // in the order in which they ran
};

// The config's name, and whether the report is incomplete.
std::string heading_of(const Report& report);

// "weights differ: ..." for the first mode whose weights do; empty if there is none.
std::string weights_that_differ(const Report& report);

Json to_json(const Report& report);

// One line for each world size.
std::string to_csv(const Report& report);

// Tables and sentences for a reader.
std::string to_markdown(const Report& report);

// As text, with digits after the point according to the size.
std::string in_ms(double ms);
std::string as_rate(double per_second);

}  // namespace lockstep::scale
