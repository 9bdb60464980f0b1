#include "launcher/report/scale_report.h"

#include <fmt/core.h>

#include "launcher/plots/ticks.h"
#include "launcher/report/page.h"
#include "launcher/report/run_facts.h"
#include "launcher/scale/plots.h"
#include "launcher/scale/report.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;
using plots::number_text;

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr const char* kFile = "scaling.json";

std::string number_in(const Json& world, std::string_view name, int digits = 4) {
  return number_text(world.at(name).get<double>(), digits);
}

void add_pictures(Page& page, const fs::path& folder) {
  for (const char* name : scale::kPictures)
    if (const fs::path path = folder / fmt::format("{}.svg", name); is_file(path))
      page.image(read_file(path, kMaxBytes), name);
}

void add_worlds(Page& page, const Json& report) {
  std::vector<Row> rates, losses, verdicts;
  for (const Json& world : report.at("worlds")) {
    const std::string name =
        fmt::format("{} {}", world.at("mode").get<std::string>(), world.at("ranks").get<int>());
    rates.push_back(
        {name,
         world.at("binding").get<std::string>(),
         std::to_string(world.at("global_batch").get<int64_t>()),
         number_in(world, "samples_per_s"),
         number_in(world, "ideal_samples_per_s"),
         fmt::format("{:.1f}%", 100 * world.at("efficiency").get<double>()),
         number_in(world, "step_ms"),
         number_in(world, "step_ms_fastest") + ".." + number_in(world, "step_ms_slowest"),
         world.contains("joules_per_step") ? number_in(world, "joules_per_step") : ""});
    Row lost{name, number_in(world, "ideal_step_ms"), number_in(world, "lost_ms", 3)};
    for (const scale::Part part : scale::kAllParts)
      lost.push_back(number_in(world.at("lost_parts_ms"), scale::key_of(part), 3));
    losses.push_back(std::move(lost));
    verdicts.push_back({name, text_of(world, "verdict")});
  }
  page.section("Rates");
  page.table({"ranks",
              "binding",
              "batch",
              "samples/s",
              "ideal",
              "efficiency",
              "step ms",
              "fastest..slowest",
              "J a step"},
             rates,
             2);
  page.section("Time beyond the ideal step, ms");
  Row header{"ranks", "ideal", "lost"};
  for (const scale::Part part : scale::kAllParts) header.push_back(scale::title_of(part));
  page.table(header, losses);
  page.section("Where the time goes");
  page.table({}, verdicts, 2);
}

}  // namespace

bool is_scale_folder(const fs::path& folder) { return is_file(folder / kFile); }

std::string scale_report(const fs::path& folder) {
  try {
    const Json report = Json::parse(read_file(folder / kFile, kMaxBytes));
    Page page("Scaling of " + report.at("name").get<std::string>(), text_of(report, "date"));
    if (report.contains("incomplete"))
      page.paragraph("Incomplete: " + text_of(report, "incomplete"));
    if (report.contains("caution")) page.paragraph(text_of(report, "caution"));
    add_pictures(page, folder);
    add_worlds(page, report);
    page.section("The same bits");
    for (const Json& weights : report.at("weights"))
      page.paragraph(text_of(weights, "statement") + ".");
    page.section("Facts");
    std::vector<Row> facts;
    for (const std::string& name : report.names())
      if (name != "worlds" && name != "runs" && name != "weights" && name != "caution" &&
          name != "incomplete" && !text_of(report, name).empty())
        facts.push_back({name, text_of(report, name)});
    page.table({}, facts, 2);
    return page.html();
  } catch (const JsonError& error) {
    throw CheckpointError("'{}' is damaged: {}", (folder / kFile).string(), error.what());
  }
}

}  // namespace lockstep::report
