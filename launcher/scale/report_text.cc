#include "launcher/scale/report_text.h"

#include <fmt/core.h>

#include <cmath>

#include "launcher/scale/report.h"
#include "runtime/base/text.h"

namespace lockstep::scale {
namespace {

Json to_json(const Parts& parts) {
  Json json;
  for (const Part part : kAllParts) json[key_of(part)] = at(parts, part);
  return json;
}

double joules_per_sample(const ScaleRow& row) {
  return row.joules_per_step / static_cast<double>(row.world.global_batch);
}

Json to_json(const ScaleRow& row) {
  Json json;
  json["mode"] = name_of(row.world.mode);
  json["ranks"] = row.world.ranks;
  json["global_batch"] = row.world.global_batch;
  json["batch_per_rank"] = row.world.global_batch / row.world.ranks;
  json["lanes"] = row.world.lanes;
  json["binding"] = row.binding;
  json["oversubscribed"] = row.oversubscribed;
  json["hosts"] = row.hosts;
  json["buckets"] = row.exchange.buckets;
  json["host_sends_bytes"] = row.exchange.host_sends_bytes;
  json["other_work_cpus"] = row.other_cpus;
  json["repeats"] = row.repeats;
  json["counted_s"] = row.counted_s;
  json["samples_per_s"] = row.samples_per_s;
  json["ideal_samples_per_s"] = row.ideal_samples_per_s;
  json["efficiency"] = row.efficiency;
  json["step_ms"] = row.step_ms;
  json["step_ms_fastest"] = row.fastest_ms;
  json["step_ms_slowest"] = row.slowest_ms;
  json["step_parts_ms"] = to_json(row.parts);
  if (row.joules_per_step >= 0) {
    json["joules_per_step"] = row.joules_per_step;
    json["joules_per_sample"] = joules_per_sample(row);
  }
  if (row.predicted_ms() > 0) {
    json["predicted_step_ms"] =
        Json::array({Json(row.predicted_low_ms), Json(row.predicted_high_ms)});
    json["forecast_error"] = row.predicted_ms() / row.step_ms - 1;
  }
  json["ideal_step_ms"] = row.ideal_step_ms;
  json["lost_ms"] = row.lost_ms;
  json["lost_parts_ms"] = to_json(row.lost);
  if (row.straggler) {
    const Straggler& straggler = *row.straggler;
    json["straggler"] = Json::object({{"rank", straggler.rank},
                                      {"host", straggler.host},
                                      {"excess_ms", straggler.excess_ms},
                                      {"in", key_of(straggler.in)},
                                      {"in_ms", straggler.in_ms},
                                      {"always", straggler.always}});
  }
  json["verdict"] = row.diagnosis;
  return json;
}

Json to_json(const MeasuredRun& run) {
  Json json;
  json["mode"] = name_of(run.world.mode);
  json["ranks"] = run.world.ranks;
  json["repeat"] = run.repeat;
  json["weights_hash"] = run.weights_hash;
  if (run.joules_per_step >= 0) json["joules_per_step"] = run.joules_per_step;
  json["command"] = run.command;
  for (const train::RankTimes& times : run.ranks) {
    Json rank =
        Json::object({{"rank", times.rank}, {"host", times.host}, {"step_ms", times.step_ms}});
    rank["parts_ms"] = to_json(parts_of(times));
    json["rank_times"].push_back(std::move(rank));
  }
  return json;
}

constexpr const char* kLegend =
    "\n"
    "## What the words mean\n"
    "\n"
    "- **batch**: samples of a step over all ranks, and **a rank** on each; **fastest..slowest**: "
    "step times of the runs whose median is `step ms`.\n"
    "- **ideal**: the smallest size's samples/s times the growth in ranks, or its step, in strong "
    "scaling divided by that growth; **efficiency**: samples/s by ideal.\n"
    "- **exposed communication**: waits for other ranks' messages that computing does not hide; "
    "**stragglers**: waits for a rank that works longer.\n"
    "- **data wait**: for the next batch.\n"
    "- **optimizer and gather**: the update of the weights, and the gather of those that other "
    "ranks have updated.\n"
    "- **launch and host gaps**: the rest of a step, between these parts.\n"
    "- **slower compute (contention)**: time of forward and backward pass beyond the ideal, as "
    "ranks share memory, caches and clock.\n"
    "- **J a step**: energy of whole packages and GPUs over the whole run, by its steps, including "
    "other programs; **W**: the same by the step's time.\n"
    "- **(gain)**: less than in the ideal step; it makes up for losses elsewhere.\n";

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) append_item(line, shell_word(word), " ");
  return line;
}

// The items of lists and objects, separated by commas; strings without quotation marks.
std::string plain(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const Json& item : value) append_item(text, plain(item));
  return text;
}

// Escapes '|', which would begin the next cell.
std::string in_a_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? "\\|" : std::string(1, c);
  return cell;
}

// "0.512 (58%)"; with a share only if time is lost in total.
std::string loss_text(double part_ms, double altogether_ms) {
  const std::string ms = in_ms(part_ms);
  if (part_ms < 0) return ms + " (gain)";
  return altogether_ms > 0 ? fmt::format("{} ({:.0f}%)", ms, 100 * part_ms / altogether_ms) : ms;
}

std::string rates_table(const std::vector<ScaleRow>& rows) {
  std::string text =
      "| ranks | hosts | batch | a rank | samples/s | ideal | efficiency | step ms | "
      "fastest..slowest | binding |\n"
      "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
  for (const ScaleRow& row : rows)
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {:.1f}% | {} | {}..{} | {} |\n",
                        row.world.ranks,
                        row.hosts,
                        row.world.global_batch,
                        row.world.global_batch / row.world.ranks,
                        as_rate(row.samples_per_s),
                        as_rate(row.ideal_samples_per_s),
                        100 * row.efficiency,
                        in_ms(row.step_ms),
                        in_ms(row.fastest_ms),
                        in_ms(row.slowest_ms),
                        row.binding);
  return text;
}

// Empty if no size's energy is known.
std::string energy_table(const std::vector<ScaleRow>& rows) {
  std::string text;
  for (const ScaleRow& row : rows)
    if (row.joules_per_step >= 0)
      text += fmt::format("| {} | {:.4g} | {:.4g} | {:.4g} |\n",
                          row.world.ranks,
                          row.joules_per_step,
                          joules_per_sample(row),
                          row.joules_per_step / row.step_ms * 1000);
  if (text.empty()) return "";
  return "\n| ranks | J a step | J a sample | W |\n| ---: | ---: | ---: | ---: |\n" + text;
}

// Empty if there is no forecast.
std::string forecast_table(const std::vector<ScaleRow>& rows) {
  std::string text;
  for (const ScaleRow& row : rows)
    if (row.predicted_ms() > 0)
      text += fmt::format("| {} | {} to {} | {} | {:+.1f}% |\n",
                          row.world.ranks,
                          in_ms(row.predicted_low_ms),
                          in_ms(row.predicted_high_ms),
                          in_ms(row.step_ms),
                          100 * (row.predicted_ms() / row.step_ms - 1));
  if (text.empty()) return "";
  return "\n| ranks | predicted step ms | measured | error |\n| ---: | ---: | ---: | ---: |\n" +
         text;
}

std::string losses_table(const std::vector<ScaleRow>& rows) {
  std::string text = "| ranks | step ms | ideal | lost |", line = "| ---: | ---: | ---: | ---: |";
  for (const Part part : kAllParts) {
    text += fmt::format(" {} |", title_of(part));
    line += " ---: |";
  }
  text += "\n" + line + "\n";
  for (const ScaleRow& row : rows) {
    if (&row == &rows.front()) continue;  // the row that the others are compared with
    text += fmt::format("| {} | {} | {} | {} |",
                        row.world.ranks,
                        in_ms(row.step_ms),
                        in_ms(row.ideal_step_ms),
                        in_ms(row.lost_ms) + (row.lost_ms < 0 ? " (gain)" : ""));
    const double altogether = row.lost_ms > 0 ? lost_altogether(row.lost) : 0;
    for (const double part : row.lost) text += fmt::format(" {} |", loss_text(part, altogether));
    text += "\n";
  }
  return text;
}

std::string mode_text(const ModeReport& mode) {
  std::string text = mode.mode == Mode::kStrong
                         ? "\n## Strong scaling: the same batch on more ranks\n\n"
                         : "\n## Weak scaling: a batch that grows with the ranks\n\n";
  text += rates_table(mode.rows);
  if (mode.rows.size() > 1)
    text +=
        "\nWhere the time beyond the ideal step goes, ms a step (share of all losses; gains make "
        "up for some):\n\n" +
        losses_table(mode.rows);
  text += energy_table(mode.rows);
  text += forecast_table(mode.rows);
  text += "\n";
  for (const ScaleRow& row : mode.rows)
    text += fmt::format("- {}: {}.\n", counted(row.world.ranks, "rank"), row.diagnosis);
  return text + "\n" + mode.hashes.statement + ".\n";
}

}  // namespace

std::string in_ms(double ms) {
  const double size = std::abs(ms);
  return fmt::format("{:.{}f}", ms, size < 1 ? 4 : size < 10 ? 3 : size < 100 ? 2 : 1);
}

std::string as_rate(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second < 100 ? 2 : per_second < 1000 ? 1 : 0);
}

std::string heading_of(const Report& report) {
  return report.name + (report.incomplete.empty() ? "" : " (incomplete)");
}

std::string weights_that_differ(const Report& report) {
  for (const ModeReport& mode : report.modes)
    if (!mode.hashes.equal) return mode.hashes.statement;
  return "";
}

Json to_json(const Report& report) {
  Json json;
  json["name"] = report.name;
  if (!report.incomplete.empty()) json["incomplete"] = report.incomplete;
  for (const Fact& fact : report.facts) json[fact.key] = fact.value;
  if (!report.caution.empty()) json["caution"] = report.caution;
  for (const ModeReport& mode : report.modes) {
    json["weights"].push_back(Json::object({{"mode", name_of(mode.mode)},
                                            {"checked", mode.hashes.checked},
                                            {"equal", mode.hashes.equal},
                                            {"statement", mode.hashes.statement}}));
    for (const ScaleRow& row : mode.rows) json["worlds"].push_back(to_json(row));
  }
  for (const MeasuredRun& run : report.runs) json["runs"].push_back(to_json(run));
  return json;
}

std::string to_csv(const Report& report) {
  std::string text =
      "mode,ranks,global_batch,lanes,repeats,oversubscribed,samples_per_s,ideal_samples_per_s,"
      "efficiency,step_ms,step_ms_fastest,step_ms_slowest,ideal_step_ms,lost_ms";
  for (const Part part : kAllParts) text += fmt::format(",lost_{}_ms", key_of(part));
  text += ",report,joules_per_step,predicted_step_ms\n";
  for (const ModeReport& mode : report.modes)
    for (const ScaleRow& row : mode.rows) {
      text += fmt::format("{},{},{},{},{},{}",
                          name_of(mode.mode),
                          row.world.ranks,
                          row.world.global_batch,
                          row.world.lanes,
                          row.repeats,
                          row.oversubscribed ? "true" : "false");
      for (const double figure : {row.samples_per_s,
                                  row.ideal_samples_per_s,
                                  row.efficiency,
                                  row.step_ms,
                                  row.fastest_ms,
                                  row.slowest_ms,
                                  row.ideal_step_ms,
                                  row.lost_ms})
        text += fmt::format(",{}", figure);
      for (const double part : row.lost) text += fmt::format(",{}", part);
      text += report.incomplete.empty() ? ",complete," : ",incomplete,";
      text += row.joules_per_step >= 0 ? fmt::format("{}", row.joules_per_step) : "";
      text += row.predicted_ms() > 0 ? fmt::format(",{}\n", row.predicted_ms()) : ",\n";
    }
  return text;
}

std::string to_markdown(const Report& report) {
  std::string text = fmt::format("# Scaling of {}\n", heading_of(report));
  if (!report.incomplete.empty()) text += "\n**Incomplete**: " + report.incomplete + "\n";
  text += "\n| | |\n| --- | --- |\n";
  for (const Fact& fact : report.facts)
    text += fmt::format(
        "| {} | {} |\n", fact.title, in_a_cell(fact.text.empty() ? plain(fact.value) : fact.text));
  if (!report.caution.empty()) text += "\n" + report.caution + "\n";
  for (const ModeReport& mode : report.modes) text += mode_text(mode);
  text += kLegend;
  text += "\n## Commands\n\n```sh\n";
  for (const MeasuredRun& run : report.runs)
    if (run.repeat == 1) text += shell_line(run.command) + "\n";
  return text + "```\n";
}

}  // namespace lockstep::scale
