#include "launcher/published/validate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "launcher/published/row_names.h"
#include "runtime/base/text.h"

namespace lockstep::published {
namespace {

constexpr double kLargeError = 0.25, kLargeRatioError = 0.08;

struct Errors {
  size_t count = 0;
  double median = 0;  // of their sizes
  double within = 0;  // share of those that are not large
  double bias = 0;    // the median
};

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Errors summary(const std::vector<double>& errors, double large) {
  Errors all;
  all.count = errors.size();
  if (errors.empty()) return all;
  std::vector<double> sizes;
  for (const double error : errors) sizes.push_back(std::abs(error));
  all.median = median_of(sizes);
  all.bias = median_of(errors);
  all.within = static_cast<double>(
                   std::ranges::count_if(sizes, [&](double size) { return size <= large; })) /
               static_cast<double>(errors.size());
  return all;
}

using NameOf = std::function<std::string(const PublishedRow&)>;

std::string devices_of(const PublishedRow& row) {
  const double devices = row.devices();
  // In the order of names.
  if (devices <= 1) return "  1";
  if (devices <= 8) return "  2 to 8";
  if (devices <= 64) return "  9 to 64";
  return devices <= 512 ? " 65 to 512" : "513 and more";
}

struct Grouping {
  const char* name;
  NameOf name_of;
};
const std::vector<Grouping>& groupings() {
  static const std::vector<Grouping> kGroupings = {
      {"source", [](const PublishedRow& row) { return row.source(); }},
      {"kind of network", [](const PublishedRow& row) { return row.text("kind"); }},
      {"devices", devices_of},
      {"hardware", [](const PublishedRow& row) { return row.text("device_key"); }}};
  return kGroupings;
}

std::map<std::string, Errors> errors_by(const Validation& validation, const NameOf& name_of) {
  std::map<std::string, std::vector<double>> errors;
  for (const JudgedRow& each : validation.rows)
    if (each.scored()) errors[name_of(each.row)].push_back(each.error());
  std::map<std::string, Errors> summaries;
  for (const auto& [name, values] : errors) summaries[name] = summary(values, kLargeError);
  return summaries;
}

Errors errors_of(const Validation& validation, bool fitted) {
  std::vector<double> errors;
  for (const JudgedRow& each : validation.rows)
    if (each.unscored.empty() && each.fitted == fitted) errors.push_back(each.error());
  return summary(errors, kLargeError);
}

Errors errors_of(const std::vector<JudgedRatio>& ratios) {
  std::vector<double> errors;
  for (const JudgedRatio& ratio : ratios) errors.push_back(ratio.error());
  return summary(errors, kLargeRatioError);
}

// The columns in which rows of one measurement agree, but for the devices.
std::string measurement_of(const PublishedRow& row) {
  std::string key = row.source();
  for (const char* column : {"model",
                             "framework",
                             "version",
                             "precision",
                             "device_key",
                             "seq_or_image",
                             "strategy",
                             "recompute"})
    key += '\t' + row.text(column);
  // Decoders were measured at the best batch for each number of devices.
  if (row.text("kind") != "gpt") key += '\t' + row.text("batch_per_device");
  return key;
}

// The rate of a device, published and predicted.
double of_device(const JudgedRow& judged, double value) {
  return unit_of(judged.row).ends_with("/device") ? value : value / judged.row.devices();
}

void add_ratios(const std::vector<const JudgedRow*>& rows, Validation& validation) {
  constexpr double kNodes[] = {8, 16};  // devices of a node
  const auto is_node = [&](double devices) {
    return std::ranges::find(kNodes, devices) != std::end(kNodes);
  };
  for (const JudgedRow* few : rows) {
    for (const JudgedRow* many : rows) {
      const double from = few->row.devices(), to = many->row.devices();
      if (!few->scored() && !many->scored()) continue;
      const JudgedRatio ratio = {
          few,
          many,
          of_device(*many, many->published()) / of_device(*few, few->published()),
          of_device(*many, many->prediction.value) / of_device(*few, few->prediction.value)};
      if (from == 1 && is_node(to)) validation.one_to_node.push_back(ratio);
      if (is_node(from) && to > from && to >= 16) validation.node_to_more.push_back(ratio);
    }
  }
}

std::string number_text(double value) { return fmt::format("{:.4g}", value); }

std::string title_of(const PublishedRow& row) {
  return fmt::format(
      "{} on {:g} x {}, {}{}",
      row.text("model"),
      row.devices(),
      row.text("device_key"),
      row.text("precision"),
      row.text("batch_per_device").empty() ? "" : ", batch " + row.text("batch_per_device"));
}

void print_errors(const std::string& name, const Errors& errors) {
  fmt::print("  {:<70}{:>5}{:>8.1f}%{:>8.0f}%{:>+8.1f}%\n",
             name,
             errors.count,
             100 * errors.median,
             100 * errors.within,
             100 * errors.bias);
}

void print_heading(const std::string& name, double large) {
  fmt::print("\n  {:<70}{:>5}{:>9}{:>9}{:>9}\n",
             name,
             "rows",
             "median",
             fmt::format("<= {:.0f}%", 100 * large),
             "bias");
}

void print_large(const Validation& validation) {
  fmt::print("\n  scored rows with more than {:.0f}%: published, predicted\n", 100 * kLargeError);
  for (const JudgedRow& each : validation.rows) {
    if (!each.scored() || std::abs(each.error()) <= kLargeError) continue;
    const std::string doubt = doubt_of(each.row);
    fmt::print("  {:<6}{}: {}, {} {} ({:+.0f}%){}\n",
               each.row.text("id"),
               title_of(each.row),
               number_text(each.published()),
               number_text(each.prediction.value),
               each.row.text("unit"),
               100 * each.error(),
               doubt.empty() ? "" : "; " + doubt);
  }
}

void print_large(const char* title, const std::vector<JudgedRatio>& ratios) {
  fmt::print(
      "\n  {} with more than {:.0f}%: published, predicted\n", title, 100 * kLargeRatioError);
  for (const JudgedRatio& ratio : ratios) {
    if (std::abs(ratio.error()) <= kLargeRatioError) continue;
    const std::string doubt = doubt_of(ratio.few->row, ratio.many->row);
    fmt::print("  {} -> {}  {} on {}, {}, {:g} -> {:g} devices: {:.2f}, {:.2f}{}\n",
               ratio.few->row.text("id"),
               ratio.many->row.text("id"),
               ratio.few->row.text("model"),
               ratio.few->row.text("device_key"),
               ratio.few->row.text("precision"),
               ratio.few->row.devices(),
               ratio.many->row.devices(),
               ratio.published,
               ratio.predicted,
               doubt.empty() ? "; no reason is known" : "; " + doubt);
  }
}

void print_unscored(const Validation& validation) {
  std::map<std::string, int> counts;
  for (const JudgedRow& each : validation.rows)
    if (!each.unscored.empty()) ++counts[each.unscored];
  if (counts.empty()) return;
  fmt::print("\n  not scored\n");
  for (const auto& [reason, count] : counts) fmt::print("  {:>5}  {}\n", count, reason);
}

Json to_json(const Errors& errors) {
  return Json::object({{"rows", errors.count},
                       {"median_error", errors.median},
                       {"within", errors.within},
                       {"bias", errors.bias}});
}

Json to_json(const std::vector<JudgedRatio>& ratios) {
  Json all = to_json(errors_of(ratios));
  all["large"] = Json::array();
  for (const JudgedRatio& ratio : ratios) {
    if (std::abs(ratio.error()) <= kLargeRatioError) continue;
    Json large = Json::object({{"few", ratio.few->row.text("id")},
                               {"many", ratio.many->row.text("id")},
                               {"published", ratio.published},
                               {"predicted", ratio.predicted},
                               {"error", ratio.error()}});
    if (const std::string doubt = doubt_of(ratio.few->row, ratio.many->row); !doubt.empty())
      large["reason"] = doubt;
    all["large"].push_back(std::move(large));
  }
  return all;
}

}  // namespace

Validation validate(std::vector<PublishedRow> rows) {
  Validation validation;
  for (PublishedRow& row : rows) {
    JudgedRow judged{std::move(row), "", false, {}};
    judged.unscored = unscored_because(judged.row);
    judged.fitted = fitted(judged.row.text("id"));
    std::string why;
    if (const auto prediction = predict(judged.row, {}, &why))
      judged.prediction = *prediction;
    else if (judged.unscored.empty())
      judged.unscored = why;
    validation.rows.push_back(std::move(judged));
  }
  std::map<std::string, std::vector<const JudgedRow*>> measurements;
  for (const JudgedRow& each : validation.rows) {
    const std::string unit = unit_of(each.row);
    if (each.unscored.empty() && unit != "fraction" && unit != "min" && unit != "ms/iteration")
      measurements[measurement_of(each.row)].push_back(&each);
  }
  for (const auto& [key, of_one] : measurements) add_ratios(of_one, validation);
  return validation;
}

void print(const Validation& validation) {
  fmt::print(
      "published training figures beside those predicted for a well-tuned trainer, which is not "
      "this program\n");
  print_heading("", kLargeError);
  print_errors("scored", errors_of(validation, false));
  print_errors("fitted: the constants of the model come from these", errors_of(validation, true));
  for (const auto& [name, name_of] : groupings()) {
    print_heading(fmt::format("scored, by {}", name), kLargeError);
    for (const auto& [group, errors] : errors_by(validation, name_of)) print_errors(group, errors);
  }
  print_heading("the rate of a device, relative to fewer devices", kLargeRatioError);
  print_errors("1 -> a node", errors_of(validation.one_to_node));
  print_errors("a node -> more", errors_of(validation.node_to_more));
  print_large(validation);
  print_large("1 -> a node", validation.one_to_node);
  print_large("a node -> more", validation.node_to_more);
  print_unscored(validation);
}

Json to_json(const Validation& validation) {
  Json json;
  json["scored"] = to_json(errors_of(validation, false));
  json["fitted"] = to_json(errors_of(validation, true));
  for (const auto& [name, name_of] : groupings()) {
    Json groups;
    for (const auto& [group, errors] : errors_by(validation, name_of))
      groups[group] = to_json(errors);
    json[fmt::format("by {}", name)] = std::move(groups);
  }
  json["one_to_node"] = to_json(validation.one_to_node);
  json["node_to_more"] = to_json(validation.node_to_more);
  for (const JudgedRow& each : validation.rows) {
    Json row = Json::object({{"id", each.row.text("id")},
                             {"model", each.row.text("model")},
                             {"unit", each.row.text("unit")},
                             {"published", each.published()},
                             {"use",
                              each.scored() ? "scored"
                              : each.fitted ? "fitted"
                                            : "unscored"}});
    if (!each.unscored.empty()) row["because"] = each.unscored;
    if (each.prediction.value > 0) {
      row["predicted"] = each.prediction.value;
      row["error"] = each.error();
      const std::string doubt = doubt_of(each.row);
      if (std::abs(each.error()) > kLargeError && !doubt.empty()) row["reason"] = doubt;
      row["predicted_step_seconds"] = each.prediction.step.seconds;
    }
    json["rows"].push_back(std::move(row));
  }
  return json;
}

}  // namespace lockstep::published
