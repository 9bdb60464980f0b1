#pragma once
// The figures of a run, as texts for the tables of its report. What a run has not recorded, for
// example because an older revision wrote it, is an empty text or leaves its row out.

#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/page.h"
#include "launcher/run/run_history.h"

namespace lockstep::report {

// A metric of evaluations for a reader: "accuracy", "F1", for eval_accuracy, eval_f1.
std::string metric_name(const std::string& field);

// A value of a record as a text: "" if it is missing, lists with commas and repetitions counted
// ("node1 (4 x), node2").
std::string text_of(const Json& record, std::string_view name);
std::string plain_text(const Json& value);

// The newest value of a field, or "".
std::string newest_text(const launcher::RunHistory& run, std::string_view field, int digits = 5);

// "1 h 12 min", "3.2 s".
std::string duration_text(double seconds);

// "1.2 GiB".
std::string bytes_text(double bytes);

// The median, or the mean of rates over equal work, which is the harmonic one. Without the first
// quarter of the steps, at most 10, in which caches and clocks warm up; NaN if there is none.
double usual_value(const launcher::MetricSeries& series);
double usual_rate(const launcher::MetricSeries& series);

// Results, in the order of importance. The same names for all runs; empty values where unknown.
std::vector<Tile> results_of(const launcher::RunHistory& run);

// Who made the others wait, by metrics.jsonl: rank, host, share of the lines, mean ms.
std::vector<Row> late_ranks(const launcher::RunHistory& run);

// The rows of the memory plan of the first rank, and what was measured.
std::vector<Row> memory_rows(const launcher::RunHistory& run);
std::vector<Row> measured_memory_rows(const launcher::RunHistory& run);

// The energy, and what could not be read.
std::vector<Row> energy_rows(const launcher::RunHistory& run);

// The forecast beside the measurement.
std::vector<Row> forecast_rows(const launcher::RunHistory& run);

// Host, CPU, versions, command line.
std::vector<Row> system_rows(const launcher::RunHistory& run);

}  // namespace lockstep::report
