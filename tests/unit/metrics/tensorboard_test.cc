// The framing of event files; check_tensorboard.py reads them with TensorBoard itself.

#include "runtime/metrics/tensorboard.h"

#include <cstring>
#include <fstream>

#include "tests/reference/text_checks.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

// CRC-32C bit by bit, and its masked form.
uint32_t crc32c(const std::string& data) {
  uint32_t crc = ~0u;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}
uint32_t masked_crc32c(const std::string& data) {
  const uint32_t crc = crc32c(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// The test vectors of RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// Splits a file into its records and checks both checksums of each.
std::vector<std::string> records_of(const fs::path& path) {
  const std::string text = text_of(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < text.size();) {
    uint64_t length = 0;
    uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, text.data() + at, 8);
    std::memcpy(&length_crc, text.data() + at + 8, 4);
    EXPECT_EQ(length_crc, masked_crc32c(text.substr(at, 8)));
    if (at + 16 + length > text.size()) {
      ADD_FAILURE() << "torn record";
      break;
    }
    records.push_back(text.substr(at + 12, length));
    std::memcpy(&data_crc, text.data() + at + 12 + length, 4);
    EXPECT_EQ(data_crc, masked_crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

TEST(TensorBoard, EveryStepOfAShortRun) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 0, 10'000);
  for (int64_t step = 1; step <= 5; ++step) writer.append(sample_record(step));
  writer.finish();
  const std::vector<std::string> records = records_of(writer.path());
  ASSERT_EQ(records.size(), 6u) << "version, five steps";
  for (size_t i = 1; i < records.size(); ++i) EXPECT_CONTAINS(records[i], "train/loss");
}

TEST(TensorBoard, ForecastsStandBesideMeasurements) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 0, 10'000);
  StepRecord record = sample_record(1);
  record.predicted_step_ms = 11.5;
  writer.append(record);
  record.forecast_error = -0.0625;
  writer.append(record);
  writer.append(sample_record(3));
  writer.finish();
  const std::vector<std::string> records = records_of(writer.path());
  ASSERT_EQ(records.size(), 4u);
  EXPECT_CONTAINS(records[1], "time/predicted_step_ms");
  EXPECT_LACKS(records[1], "time/forecast_error");
  EXPECT_CONTAINS(records[2], "time/forecast_error");
  EXPECT_LACKS(records[3], "predicted");
}

TEST(TensorBoard, OfALongRunEveryFewStepsEvaluationsAndTheLastStep) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 0, 99'999);  // every tenth
  const std::string name = writer.path().filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  for (int64_t step = 1; step <= 25; ++step) {
    StepRecord record = sample_record(step);
    if (step == 15) record.eval_loss = 0.5;
    writer.append(record);
  }
  writer.finish();
  writer.finish();
  const std::vector<std::string> records = records_of(writer.path());
  ASSERT_EQ(records.size(), 5u) << "version, step 10, evaluation at 15, step 20, step 25";
  EXPECT_CONTAINS(records[0], "brain.Event:2");
  EXPECT_CONTAINS(records[1], "train/loss");
  EXPECT_CONTAINS(records[1], "time/straggler_ms");
  EXPECT_LACKS(records[1], "tokens_per_s");
  EXPECT_CONTAINS(records[2], "eval/loss");
  EXPECT_LACKS(records[2], "train/loss");
  EXPECT_CONTAINS(records[4], "train/loss");
}

TEST(TensorBoard, TheRunIsDescribedAndItsEndRecorded) {
  for (const bool done : {false, true}) {
    const TemporaryFolder folder;
    const std::string config = "name: \"a\"\n" + std::string(10'000, '#') + "\n";
    TensorBoardWriter writer(
        folder.path(),
        0,
        10,
        {},
        {.config = config, .hparams = {{"schedule.lr", 0.5}, {"model", "gpt"}}});
    writer.append(sample_record(1));
    writer.finish(done);
    const std::vector<std::string> records = records_of(writer.path());
    ASSERT_EQ(records.size(), done ? 6u : 5u) << "version, config, experiment, start, step 1, end";
    EXPECT_CONTAINS(records[1], "    name: \"a\"\n    ##########");
    EXPECT_CONTAINS(records[2], "_hparams_/experiment");
    EXPECT_CONTAINS(records[2], "eval/accuracy");
    EXPECT_CONTAINS(records[3], "_hparams_/session_start_info");
    EXPECT_CONTAINS(records[3], "schedule.lr");
    EXPECT_CONTAINS(records[4], "train/loss");
    if (done) {
      EXPECT_CONTAINS(records[5], "_hparams_/session_end_info");
    }
  }
}

TEST(TensorBoard, ResumedFilesSaySo) {
  const TemporaryFolder folder;
  const TensorBoardWriter writer(folder.path(), 7, 100);
  EXPECT_EQ(records_of(writer.path()).size(), 2u);
}

// Of a run without a checkpoint that starts anew in its folder.
TEST(TensorBoard, FilesOfARunBeforeAreHiddenFromTheFirstStepOn) {
  const TemporaryFolder folder;
  const fs::path before = folder.path() / "events.out.tfevents.0000000001.host.1";
  std::ofstream(before) << "of the run before";
  const TensorBoardWriter writer(folder.path(), 0, 100);
  const std::vector<std::string> records = records_of(writer.path());
  ASSERT_EQ(records.size(), 2u);
  const std::string step_1 = "\x10\x01", session_log_start = "\x3a\x02\x08\x01";
  EXPECT_TRUE(records[1].ends_with(step_1 + session_log_start)) << records[1];
}

}  // namespace
}  // namespace lockstep::metrics
