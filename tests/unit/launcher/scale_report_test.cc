// Catches: lost time whose parts do not add up to it, a loss that is taken for a gain, a slow rank
// that goes unnamed or is named without cause, or as if it were certain after a moment, weights
// that differ and pass for equal, a report that does not say what is missing, and tables whose
// figures stand in the wrong column.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "launcher/scale/facts.h"
#include "launcher/scale/plots.h"
#include "tests/reference/text_checks.h"

namespace lockstep::scale {
namespace {

// Times of one rank; what is left of the step are gaps.
train::RankTimes times(int rank, double step, double compute, double exposed, double straggler) {
  return {.rank = rank,
          .host = rank == 0 ? "ada" : "bob",
          .steps = 200,
          .step_ms = step,
          .compute_ms = compute,
          .data_wait_ms = 1,
          .comm_exposed_ms = exposed,
          .straggler_ms = straggler,
          .optimizer_ms = 2};
}

MeasuredRun run_of(Mode mode, int64_t batch, int repeat, std::vector<train::RankTimes> ranks) {
  MeasuredRun run;
  run.world = {mode, static_cast<int>(ranks.size()), batch, 8};
  run.repeat = repeat;
  run.weights_hash = "00000000000000aa";
  run.ranks = std::move(ranks);
  run.command = {"mpirun", "-n", "2", "lockstep", "--set", "name=it's"};
  run.binding = "each rank on 1 core of its own";
  return run;
}

// One rank: 40 ms. Two: 25 ms, of which rank 1 works longer than rank 0.
std::vector<MeasuredRun> strong_runs() {
  return {run_of(Mode::kStrong, 64, 1, {times(0, 40, 36, 0, 0)}),
          run_of(Mode::kStrong, 64, 1, {times(0, 25, 17, 4, 1), times(1, 25, 18.5, 2.5, 0)})};
}

TEST(ScaleReport, PartsOfAStepAddUp) {
  const Parts parts = parts_of(times(0, 25, 17, 4, 1));
  EXPECT_DOUBLE_EQ(at(parts, Part::kExchange), 3);
  EXPECT_DOUBLE_EQ(at(parts, Part::kStragglers), 1);
  EXPECT_DOUBLE_EQ(at(parts, Part::kGaps), 1);
  EXPECT_DOUBLE_EQ(sum(parts), 25);
}

TEST(ScaleReport, StrongLossIsAgainstAShareOfTheSmallestWorld) {
  const std::vector<ScaleRow> rows = make_rows(strong_runs());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(rows[0].lost_ms, 0);
  const ScaleRow& two = rows[1];
  EXPECT_DOUBLE_EQ(two.samples_per_s, 2560);
  EXPECT_DOUBLE_EQ(two.ideal_samples_per_s, 3200);
  EXPECT_DOUBLE_EQ(two.efficiency, 0.8);
  EXPECT_DOUBLE_EQ(two.ideal_step_ms, 20);
  EXPECT_DOUBLE_EQ(two.lost_ms, 5);
  EXPECT_DOUBLE_EQ(sum(two.lost), two.lost_ms);
  // On rank 0, which works least: its parts less half of those of the world of one.
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kExchange), 3);
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kStragglers), 1);
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kDataWait), 0.5);
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kOptimizer), 1);
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kCompute), -1);  // a gain
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kGaps), 0.5);
  EXPECT_CONTAINS(two.diagnosis,
                  "most is lost to exposed communication, 3 of 6 ms a step (5 after what "
                  "other parts gain)");
  EXPECT_CONTAINS(two.diagnosis, "comm.bucket_mib");
}

TEST(ScaleReport, WeakLossIsAgainstTheSmallestWorldItself) {
  const std::vector<ScaleRow> rows =
      make_rows({run_of(Mode::kWeak, 64, 1, {times(0, 40, 36, 0, 0)}),
                 run_of(Mode::kWeak, 128, 1, {times(0, 50, 45, 1, 0), times(1, 50, 45, 1, 0)})});
  const ScaleRow& two = rows[1];
  EXPECT_DOUBLE_EQ(two.efficiency, 0.8);
  EXPECT_DOUBLE_EQ(two.ideal_step_ms, 40);
  EXPECT_DOUBLE_EQ(two.lost_ms, 10);
  EXPECT_DOUBLE_EQ(sum(two.lost), two.lost_ms);
  EXPECT_DOUBLE_EQ(at(two.lost, Part::kCompute), 9);
  EXPECT_CONTAINS(two.diagnosis, "most is lost to slower compute (contention), 9 of 10 ms");
}

TEST(ScaleReport, GrowthCountsFromTheSmallestWorldWhateverItIs) {
  std::vector<train::RankTimes> four;
  for (int rank = 0; rank < 4; ++rank) four.push_back(times(rank, 25, 20, 1, 0));
  const std::vector<ScaleRow> rows =
      make_rows({run_of(Mode::kStrong, 64, 1, four),  // in any order
                 run_of(Mode::kStrong, 64, 1, {times(0, 40, 36, 0, 0), times(1, 40, 36, 0, 0)})});
  EXPECT_EQ(rows[0].world.ranks, 2);
  EXPECT_DOUBLE_EQ(rows[1].ideal_step_ms, 20);
  EXPECT_DOUBLE_EQ(rows[1].ideal_samples_per_s, 3200);
}

TEST(ScaleReport, FasterThanIdealIsAGain) {
  const std::vector<ScaleRow> rows = make_rows(
      {run_of(Mode::kStrong, 64, 1, {times(0, 40, 36, 0, 0)}),
       run_of(Mode::kStrong, 64, 1, {times(0, 16, 12, 0.5, 0), times(1, 16, 12, 0.5, 0)})});
  EXPECT_LT(rows[1].lost_ms, 0);
  EXPECT_DOUBLE_EQ(sum(rows[1].lost), rows[1].lost_ms);
  EXPECT_CONTAINS(rows[1].diagnosis, "faster than ideal by 4 ms");
  EXPECT_CONTAINS(rows[0].diagnosis, "the reference for the others");
}

TEST(ScaleReport, MediansAndSpread) {
  std::vector<MeasuredRun> runs;
  for (const double step : {44.0, 40.0, 90.0})
    runs.push_back(run_of(Mode::kStrong, 64, 1, {times(0, step, step - 4, 0, 0)}));
  const ScaleRow odd = make_rows(runs)[0];
  EXPECT_EQ(odd.repeats, 3u);
  EXPECT_DOUBLE_EQ(odd.step_ms, 44);
  EXPECT_DOUBLE_EQ(odd.fastest_ms, 40);
  EXPECT_DOUBLE_EQ(odd.slowest_ms, 90);
  runs.pop_back();
  const ScaleRow even = make_rows(runs)[0];
  EXPECT_DOUBLE_EQ(even.step_ms, 42);
  EXPECT_DOUBLE_EQ(even.samples_per_s, 64 / 0.042);
  EXPECT_DOUBLE_EQ(sum(even.parts), even.step_ms);
}

TEST(ScaleReport, NamesTheSlowRankAndInWhatItIsSlow) {
  std::vector<MeasuredRun> runs = strong_runs();
  EXPECT_EQ(make_rows(runs)[0].straggler, std::nullopt);
  const std::optional<Straggler> found = make_rows(runs)[1].straggler;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->host, "bob");
  EXPECT_DOUBLE_EQ(found->excess_ms, 1.5);
  EXPECT_EQ(found->in, Part::kCompute);
  EXPECT_DOUBLE_EQ(found->in_ms, 1.5);
  EXPECT_TRUE(found->always);
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis, "; rank 1 on bob works 1.5 ms longer");
  runs[1].ranks = {times(0, 30, 17, 9, 8.5), times(1, 30, 17, 0.5, 0)};
  runs[1].ranks[1].data_wait_ms = 9.5;
  const ScaleRow row = make_rows(runs)[1];
  EXPECT_EQ(row.straggler->in, Part::kDataWait);
  EXPECT_CONTAINS(row.diagnosis,
                  "rank 1 on bob works 8.5 ms longer a step, mostly in waiting for data: check "
                  "how fast its host reads");
}

TEST(ScaleReport, AfterAMomentASlowRankMayBeChance) {
  std::vector<MeasuredRun> runs = strong_runs();
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "chance");  // 200 steps of 25 ms
  runs.push_back(runs[1]);
  for (train::RankTimes& rank : runs[2].ranks) rank.steps = 20;  // one of the two is too short
  EXPECT_DOUBLE_EQ(make_rows(runs)[1].counted_s, 0.5);
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis, "computing, which in only 0.5 s may be chance");
  runs[1].ranks[0].straggler_ms = runs[2].ranks[0].straggler_ms = 2.9;  // now most is lost to it
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis,
                  "may be chance: a run with more --steps would show it");
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "check what else runs there");
}

TEST(ScaleReport, ShortRunsAreCautionedAgainst) {
  std::vector<MeasuredRun> runs = strong_runs();
  EXPECT_EQ(caution_of_length(runs, 100000), "");
  for (train::RankTimes& rank : runs[1].ranks) rank.steps = 79;  // of 25 ms: 1.975 s
  // 120 steps of 25 ms are 3 s; 10 more do not count.
  EXPECT_CONTAINS(caution_of_length(runs, 100000), "took only 1.98 s in a strong run of 2 ranks");
  EXPECT_CONTAINS(caution_of_length(runs, 100000), "--steps 130 would give about 3 s.");
  EXPECT_CONTAINS(caution_of_length(runs, 100), "training ends at step 100.");
  for (train::RankTimes& rank : runs[1].ranks) rank.step_ms = 0.037;
  EXPECT_CONTAINS(caution_of_length(runs, 100000), "--steps 82000 would");
}

TEST(ScaleReport, WhatIsMissingIsCounted) {
  const std::vector<MeasuredRun> runs = strong_runs();
  EXPECT_EQ(what_is_missing(runs, {runs[0].world, runs[1].world, {Mode::kWeak, 1}}, 3, "a fire"),
            "runs made, of 3 of each size: strong on 1 rank: 1, strong on 2 ranks: 1, weak on 1 "
            "rank: 0. What ended the measurement: a fire");
}

TEST(ScaleReport, NamesNoRankWhereTheyTakeTurns) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[1].ranks = {times(0, 30, 17, 9, 8.5), times(1, 30, 17.2, 8.8, 8.3)};
  const ScaleRow row = make_rows(runs)[1];
  ASSERT_TRUE(row.straggler);
  EXPECT_FALSE(row.straggler->always);
  EXPECT_CONTAINS(row.diagnosis, "different ranks are late at different times");
  EXPECT_LACKS(row.diagnosis, "bob");
}

TEST(ScaleReport, ShortWaitsNameNobody) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[1].ranks[0].straggler_ms = 0.02 * 25;
  EXPECT_EQ(make_rows(runs)[1].straggler, std::nullopt);
}

TEST(ScaleReport, MoreThreadsThanCpusIsSaid) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[1].oversubscribed = true;
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis,
                  "more threads than CPUs: shows that it works, not how it scales");
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "network");
  EXPECT_LACKS(make_rows(runs)[0].diagnosis, "more threads than CPUs");
}

// Advice on a network where there is none misleads, as does silence on what the network carries.
TEST(ScaleReport, AdviceOnExchangesFitsWhereTheRanksAre) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[1].exchange = {.buckets = 3, .largest_bucket_bytes = 1 << 20, .host_sends_bytes = 3125000};
  EXPECT_EQ(make_rows(runs)[1].hosts, 2);
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis,
                  "each host sends 3.12 MB a step, on average 1000 Mbit/s");
  runs[1].ranks[1].host = "ada";
  runs[1].exchange = {.buckets = 3, .largest_bucket_bytes = 1 << 20, .shares_memory = true};
  EXPECT_EQ(make_rows(runs)[1].hosts, 1);
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis, "these ranks share memory");
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "network");
}

TEST(ScaleReport, WhatOtherWorkTookIsTold) {
  std::vector<MeasuredRun> runs = strong_runs();
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "other work took");
  runs[1].other_cpus = 0.9;
  runs.push_back(runs[1]);
  runs.back().other_cpus = 1.1;
  EXPECT_DOUBLE_EQ(make_rows(runs)[1].other_cpus, 1);
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis,
                  "; meanwhile other work took 1.0 CPUs of this host");
}

TEST(ScaleReport, ManySmallBucketsAreNamed) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[1].exchange = {.buckets = 262, .largest_bucket_bytes = 10 << 10};
  EXPECT_CONTAINS(make_rows(runs)[1].diagnosis, "262 buckets of up to 10 KiB");
  runs[1].exchange = {.buckets = 262, .largest_bucket_bytes = 25 << 20};
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "262 buckets");
  runs[1].exchange = {.buckets = 2, .largest_bucket_bytes = 10 << 10};  // a small model
  EXPECT_LACKS(make_rows(runs)[1].diagnosis, "buckets of up to");
}

// What slows all sizes alike is no loss of scaling, but must not go untold.
TEST(ScaleReport, TheSmallestWorldsOwnWaitsAreNamed) {
  std::vector<MeasuredRun> runs = strong_runs();
  runs[0].ranks[0].compute_ms = 7;
  runs[0].ranks[0].data_wait_ms = 30;
  EXPECT_CONTAINS(make_rows(runs)[0].diagnosis,
                  "75% of its own step is waiting for data: more data.decode_threads");
}

TEST(ScaleReport, StrongRunsMustEndWithEqualWeights) {
  std::vector<MeasuredRun> runs = strong_runs();
  HashCheck check = compare_hashes(runs, /*tree_order=*/true);
  EXPECT_TRUE(check.checked);
  EXPECT_TRUE(check.equal);
  EXPECT_CONTAINS(check.statement, "00000000000000aa");
  runs[1].weights_hash = "00000000000000bb";
  check = compare_hashes(runs, true);
  EXPECT_FALSE(check.equal);
  EXPECT_EQ(check.statement,
            "weights differ: strong 1-1 ends with 00000000000000aa, strong 2-1 with "
            "00000000000000bb");
  check = compare_hashes(runs, /*tree_order=*/false);
  EXPECT_FALSE(check.checked);
  EXPECT_TRUE(check.equal);
}

TEST(ScaleReport, WeakRunsAreComparedWithTheirRepeatsAlone) {
  std::vector<MeasuredRun> runs = strong_runs();
  for (MeasuredRun& run : runs) run.world.mode = Mode::kWeak;
  runs[1].weights_hash = "00000000000000bb";
  EXPECT_FALSE(compare_hashes(runs, true).checked);  // nothing to compare
  runs.push_back(runs[1]);
  runs.back().repeat = 2;
  EXPECT_TRUE(compare_hashes(runs, true).checked);
  EXPECT_TRUE(compare_hashes(runs, true).equal);
  runs.back().weights_hash = "00000000000000cc";
  EXPECT_FALSE(compare_hashes(runs, true).equal);
}

Report report_of(const std::vector<MeasuredRun>& runs) {
  Report report;
  report.name = "tiny";
  report.facts = {{"parameters", "parameters", 1234},
                  {"hosts", "hosts", Json::array({"ada", "bob"})}};
  report.modes = {{Mode::kStrong, make_rows(runs), compare_hashes(runs, true)}};
  report.runs = runs;
  return report;
}

TEST(ScaleReportText, Markdown) {
  const std::string text = to_markdown(report_of(strong_runs()));
  EXPECT_CONTAINS(text, "# Scaling of tiny");
  EXPECT_CONTAINS(text, "| hosts | ada, bob |");
  EXPECT_CONTAINS(text,
                  "| 2 | 2 | 64 | 32 | 2560 | 3200 | 80.0% | 25.00 | 25.00..25.00 | each rank");
  EXPECT_CONTAINS(text,
                  "| 2 | 25.00 | 20.00 | 5.000 | 3.000 (50%) | 1.000 (17%) | 0.5000 (8%) | "
                  "1.000 (17%) | 0.5000 (8%) | -1.000 (gain) |");
  EXPECT_CONTAINS(text, "mpirun -n 2 lockstep --set 'name=it'\\''s'");
}

TEST(ScaleReportText, CautionIsToldWhereThereIsOne) {
  Report report = report_of(strong_runs());
  EXPECT_LACKS(to_markdown(report), "Caution");
  EXPECT_FALSE(to_json(report).contains("caution"));
  report.caution = "Caution: busy.";
  EXPECT_CONTAINS(to_markdown(report), "\nCaution: busy.\n");
  EXPECT_EQ(to_json(report).at("caution"), "Caution: busy.");
}

TEST(ScaleReportText, AnIncompleteReportSaysSoEverywhere) {
  Report report = report_of(strong_runs());
  EXPECT_LACKS(to_markdown(report), "ncomplete");
  EXPECT_FALSE(to_json(report).contains("incomplete"));
  EXPECT_LACKS(to_csv(report), "incomplete");
  report.incomplete = "a fire";
  EXPECT_EQ(to_markdown(report).find("# Scaling of tiny (incomplete)\n\n**Incomplete**: a fire\n"),
            0u);
  EXPECT_EQ(to_json(report).at("incomplete"), "a fire");
  EXPECT_CONTAINS(to_csv(report), ",-1,incomplete,,\n");
  EXPECT_CONTAINS(plots::svg_of(make_pictures(report)[0]), "tiny (incomplete): throughput");
}

TEST(ScaleReportText, AFactsTextStaysInItsCell) {
  Report report = report_of(strong_runs());
  report.facts = {{"set", "--set", Json::array({"a=1,2", "b=|"}), "`a=1,2` `b=|`"}};
  EXPECT_CONTAINS(to_markdown(report), "| --set | `a=1,2` `b=\\|` |\n");
  EXPECT_EQ(to_json(report).at("set").at(0), "a=1,2");
}

// A reader must find every heading of the tables explained.
TEST(ScaleReportText, WordsAreExplained) {
  const std::string text = to_markdown(report_of(strong_runs()));
  for (const Part part : kAllParts) EXPECT_CONTAINS(text, fmt::format("**{}**: ", title_of(part)));
  for (const char* word : {"batch", "a rank", "ideal", "efficiency", "fastest..slowest", "(gain)"})
    EXPECT_CONTAINS(text, fmt::format("**{}**", word));
}

TEST(ScaleReportText, Csv) {
  const std::string text = to_csv(report_of(strong_runs()));
  EXPECT_CONTAINS(text, "\nstrong,2,64,8,1,false,2560,3200,0.8,25,25,25,20,5,3,1,");
}

TEST(ScaleReportText, Json) {
  const Json json = to_json(report_of(strong_runs()));
  EXPECT_EQ(json.at("parameters"), 1234);
  EXPECT_EQ(json.at("weights").at(0).at("equal"), true);
  const auto& two = json.at("worlds").at(1);
  EXPECT_EQ(two.at("ranks"), 2);
  EXPECT_EQ(two.at("batch_per_rank"), 32);
  EXPECT_DOUBLE_EQ(two.at("lost_parts_ms").at("compute").get<double>(), -1);
  EXPECT_EQ(two.at("straggler").at("host"), "bob");
  EXPECT_EQ(json.at("runs").size(), 2u);
  EXPECT_EQ(json.at("runs").at(1).at("rank_times").size(), 2u);
}

TEST(ScaleReportText, EnergyIsTheMedianOfTheRunsThatKnowIt) {
  Report report = report_of(strong_runs());
  EXPECT_LACKS(to_markdown(report), "| ranks | J a step");
  EXPECT_FALSE(to_json(report).at("worlds").at(0).contains("joules_per_step"));
  std::vector<MeasuredRun> runs = strong_runs();
  for (const double joules : {6.0, -1.0, 2.0}) {
    runs.push_back(strong_runs()[1]);
    runs.back().joules_per_step = joules;
  }
  report.modes[0].rows = make_rows(runs);
  EXPECT_CONTAINS(to_markdown(report),
                  "| ranks | J a step | J a sample | W |\n"
                  "| ---: | ---: | ---: | ---: |\n"
                  "| 2 | 4 | 0.0625 | 160 |\n");
  EXPECT_CONTAINS(to_csv(report), ",complete,,\nstrong,2,");
  EXPECT_CONTAINS(to_csv(report), ",complete,4,\n");
  const Json json = to_json(report);
  EXPECT_FALSE(json.at("worlds").at(0).contains("joules_per_step"));
  EXPECT_EQ(json.at("worlds").at(1).at("joules_per_step").get<double>(), 4);
  EXPECT_EQ(json.at("worlds").at(1).at("joules_per_sample").get<double>(), 0.0625);
}

TEST(ScaleReportText, ForecastsStandBesideMeasurements) {
  Report report = report_of(strong_runs());
  EXPECT_LACKS(to_markdown(report), "predicted step ms");
  EXPECT_LACKS(plots::svg_of(make_pictures(report)[0]), "predicted");
  std::vector<MeasuredRun> runs = strong_runs();
  for (MeasuredRun& run : runs) {
    run.predicted_low_ms = 12;
    run.predicted_high_ms = 18;
  }
  report.modes[0].rows = make_rows(runs);
  const ScaleRow& row = report.modes[0].rows[1];
  EXPECT_CONTAINS(to_markdown(report), "| ranks | predicted step ms | measured | error |");
  EXPECT_CONTAINS(to_csv(report), ",complete,,15\n");
  EXPECT_CONTAINS(plots::svg_of(make_pictures(report)[0]), ">predicted strong</text>");
  const Json json = to_json(report).at("worlds").at(1);
  EXPECT_EQ(json.at("predicted_step_ms").at(size_t{1}).get<double>(), 18);
  EXPECT_DOUBLE_EQ(json.at("forecast_error").get<double>(), 15 / row.step_ms - 1);
}

TEST(ScaleReportText, DigitsFitTheSize) {
  EXPECT_EQ(in_ms(0.01817), "0.0182");
  EXPECT_EQ(in_ms(-3.14159), "-3.142");
  EXPECT_EQ(in_ms(126.64), "126.6");
  EXPECT_EQ(as_rate(4.256), "4.26");
  EXPECT_EQ(as_rate(35512.3), "35512");
}

TEST(ScalePictures, ShowTheRowsFigures) {
  const std::vector<plots::Picture> pictures = make_pictures(report_of(strong_runs()));
  ASSERT_EQ(pictures.size(), kPictures.size());
  EXPECT_TRUE(pictures[0].panels[0].x.logarithmic && pictures[0].panels[0].y.logarithmic);
  EXPECT_EQ(pictures[0].panels[0].x.ticks, (std::vector<double>{1, 2}));
  const std::string rates = plots::csv_of(pictures[0]);
  EXPECT_CONTAINS(rates, ",ideal strong,2,3200,,\n");
  EXPECT_CONTAINS(rates, ",strong,1,1600,1600,1600\n");
  EXPECT_CONTAINS(rates, ",strong,2,2560,2560,2560\n");
  EXPECT_CONTAINS(plots::csv_of(pictures[1]), ",strong,2,80,80,80\n");
  const std::string lost = plots::csv_of(pictures[2]);
  EXPECT_CONTAINS(lost, ",exposed communication,strong 2,3,,\n");
  EXPECT_CONTAINS(lost, ",slower compute (contention),strong 2,-1,,\n");
  EXPECT_CONTAINS(plots::svg_of(pictures[1]), ">80</text>");
}

TEST(ScalePictures, MoreThreadsThanCpusIsMarked) {
  std::vector<MeasuredRun> runs = strong_runs();
  for (const plots::Picture& picture : make_pictures(report_of(runs)))
    EXPECT_LACKS(plots::svg_of(picture), "more threads than CPUs") << picture.title;
  runs[1].oversubscribed = true;
  const std::vector<plots::Picture> pictures = make_pictures(report_of(runs));
  for (const plots::Picture& picture : pictures)
    EXPECT_CONTAINS(plots::svg_of(picture), "more threads than CPUs") << picture.title;
  EXPECT_FALSE(pictures[0].panels[0].series[1].points[0].ringed);
  EXPECT_TRUE(pictures[0].panels[0].series[1].points[1].ringed);
  EXPECT_EQ(pictures[2].panels[0].categories[1], "strong 2*");
}

TEST(ScalePictures, HardwareAndDateAreInThem) {
  Report report = report_of(strong_runs());
  report.facts = {{"cpu_model", "CPU", "Xeon <1>"}, {"date", "date", "2026-01-31"}};
  for (const plots::Picture& picture : make_pictures(report))
    EXPECT_CONTAINS(plots::svg_of(picture), ">Xeon &lt;1&gt;; 2026-01-31</text>");
}

TEST(ScaleRuns, ReadsWhatTrainWrites) {
  MeasuredRun run;
  const auto result = Json::parse(R"({"weights_hash": "0f", "joules_per_step": 2.5,
      "energy_not_readable": "CPUs of ada: hidden",
      "forecast": {"on": "here", "step_ms": [7, 8]}, "exchange": {
      "buckets": 3, "largest_bucket_bytes": 1024, "shares_memory": true}, "ranks": [
      {"rank": 0, "host": "ada", "steps": 50, "step_ms": 9, "compute_ms": 1, "data_wait_ms": 2,
       "comm_exposed_ms": 3, "straggler_ms": 0.5, "optimizer_ms": 4}]})");
  read_result(result, run);
  EXPECT_EQ(run.weights_hash, "0f");
  EXPECT_EQ(run.joules_per_step, 2.5);
  EXPECT_EQ(run.predicted_low_ms, 7);
  EXPECT_EQ(run.predicted_high_ms, 8);
  EXPECT_EQ(run.energy_not_readable, "CPUs of ada: hidden");
  ASSERT_EQ(run.ranks.size(), 1u);
  EXPECT_EQ(run.ranks[0].host, "ada");
  EXPECT_DOUBLE_EQ(at(parts_of(run.ranks[0]), Part::kExchange), 2.5);
  EXPECT_DOUBLE_EQ(at(parts_of(run.ranks[0]), Part::kOptimizer), 4);
  EXPECT_EQ(run.exchange.buckets, 3);
  EXPECT_EQ(run.exchange.host_sends_bytes, 0);
  EXPECT_THROW(read_result(Json::object(), run), JsonError);
}

TEST(ScaleRuns, AFailureIsToldInTheProgramsOwnWords) {
  const std::string noise = "-----\nmpirun detected that a process failed\n";
  EXPECT_EQ(why_failed("device cpu\nlockstep: error: no such file\n" + noise),
            "error: no such file");
  EXPECT_EQ(why_failed(noise), "mpirun detected that a process failed");
  EXPECT_EQ(why_failed(""), "it printed nothing");
}

}  // namespace
}  // namespace lockstep::scale
