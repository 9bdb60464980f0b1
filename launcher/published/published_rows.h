#pragma once
// Rows of published training figures, and what the trainer's model says of each.
//
// A file has a line of column names, and then a row each line; tabs separate the columns. They are
// those of rows.tsv in this folder. Others are ignored, and absent ones are empty. A row has what
// was trained, on what, with which software and settings, and the published value.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/published/tuned_trainer.h"

namespace lockstep::published {

class PublishedRow {
 public:
  explicit PublishedRow(std::map<std::string, std::string, std::less<>> columns)
      : columns_(std::move(columns)) {}

  // A column's text; empty if there is none.
  const std::string& text(std::string_view column) const;
  // The number at the beginning of a column's text, otherwise `otherwise`.
  double number(std::string_view column, double otherwise = 0) const;
  bool has(std::string_view column, std::string_view part) const;

  // The repository or site, and the page of it if it has several.
  std::string source() const;
  double devices() const { return number("devices", 1); }
  double nodes() const;

 private:
  std::map<std::string, std::string, std::less<>> columns_;
};

// Throws ConfigError if a needed column is absent.
std::vector<PublishedRow> read_rows(const std::string& text, const std::string& origin);

// Why a row is not scored; empty if it is.
std::string unscored_because(const PublishedRow& row);

// Whether constants were fitted to the row with this id.
bool fitted(std::string_view id);

struct Prediction {
  double value = 0;  // in the row's unit
  TrainerStep step;
};
// No value if the network or the hardware is unknown; `why` then names it.
std::optional<Prediction> predict(const PublishedRow& row,
                                  const TrainerConstants& constants,
                                  std::string* why);

// What may explain a large error of the row; empty if nothing is known.
std::string doubt_of(const PublishedRow& row);
// The same of a ratio of two rows that differ in their devices.
std::string doubt_of(const PublishedRow& few, const PublishedRow& many);

}  // namespace lockstep::published
