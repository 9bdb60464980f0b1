#pragma once
// Predicted beside published: `lockstep plan --validate ROWS.tsv`.
//
// Rows are scored, fitted or unscored (published_rows.h). Errors are (predicted - published) /
// published, and are given by source, by network, by devices and by hardware. Ratios compare two
// rows that differ only in their devices: how the rate of a device changes from one to a node, and
// from a node to more.

#include <string>
#include <vector>

#include "launcher/published/published_rows.h"
#include "runtime/base/json.h"

namespace lockstep::published {

struct JudgedRow {
  PublishedRow row;
  std::string unscored;  // why; empty: scored or fitted
  bool fitted = false;
  Prediction prediction;

  bool scored() const { return unscored.empty() && !fitted; }
  double published() const { return row.number("value"); }
  double error() const { return prediction.value / published() - 1; }
};

struct JudgedRatio {
  const JudgedRow *few, *many;
  double published = 0, predicted = 0;  // rate of a device of `many`, relative to one of `few`

  double error() const { return predicted / published - 1; }
};

struct Validation {
  std::vector<JudgedRow> rows;
  std::vector<JudgedRatio> one_to_node, node_to_more;  // with at least one scored row
};

Validation validate(std::vector<PublishedRow> rows);

void print(const Validation& validation);
Json to_json(const Validation& validation);

}  // namespace lockstep::published
