#include "runtime/metrics/tensorboard.h"

#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/metrics/environment.h"
#include "runtime/metrics/event.pb.h"

namespace lockstep::metrics {
namespace {

// The prefix of the name of every event file.
constexpr const char* kEvents = "events.out.tfevents.";
// Max steps with training scalars; about 5 MB.
constexpr int64_t kMaxPoints = 10'000;
// TensorBoard's numbers: DATA_CLASS_TENSOR, DT_STRING, DATA_TYPE_STRING, DATA_TYPE_FLOAT64,
// STATUS_SUCCESS.
constexpr int kTensorClass = 2, kStringType = 7, kStringHparam = 1, kNumberHparam = 3, kSuccess = 1;
// The columns of the table of hyperparameters besides these.
constexpr const char* kComparedMetrics[] = {
    "train/loss", "eval/loss", "eval/accuracy", "throughput/samples_per_s"};

std::filesystem::path event_path(const std::filesystem::path& folder) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof(host) - 1) != 0) std::strcpy(host, "localhost");
  return folder / fmt::format("{}{:010}.{}.{}",
                              kEvents,
                              static_cast<int64_t>(seconds_since_1970()),
                              host,
                              ::getpid());
}

bool has_events(const std::filesystem::path& folder) {
  std::error_code error;  // an unreadable folder is reported when the file is opened
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(kEvents)) return true;
  }
  return false;
}

// CRC-32C as TFRecord files store it: rotated right by 15 bits, plus a constant.
uint32_t masked_crc32c(char* data, size_t bytes) {
  const uint32_t crc =
      ~crc32_iscsi(reinterpret_cast<unsigned char*>(data), static_cast<int>(bytes), ~0u);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Bytes of a record besides its data.
constexpr size_t kFrameBytes = 16;

// TFRecord framing: length, its checksum, data, its checksum; little-endian. Returns the end.
char* write_record(char* out, const proto::TensorBoardEvent& event, uint64_t length) {
  char* data = out + 12;
  event.SerializeToArray(data, static_cast<int>(length));
  std::memcpy(out, &length, 8);
  const uint32_t length_crc = masked_crc32c(out, 8), data_crc = masked_crc32c(data, length);
  std::memcpy(out + 8, &length_crc, 4);
  std::memcpy(data + length, &data_crc, 4);
  return data + length + 4;
}

void append_event(BufferedFile& file, const proto::TensorBoardEvent& event) {
  const uint64_t length = event.ByteSizeLong();
  if (length + kFrameBytes <= BufferedFile::kMaxRecordBytes)
    return file.commit(write_record(file.reserve(), event, length));
  std::string record(length + kFrameBytes, '\0');
  write_record(record.data(), event, length);
  file.add_long(record);
}

// An event of the hparams plugin, which looks for its data in the metadata of tags.
proto::TensorBoardEvent hparams_event(const char* tag, const proto::TensorBoardHparams& data) {
  proto::TensorBoardEvent event;
  event.set_wall_time(seconds_since_1970());
  proto::TensorBoardEvent::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("hparams");
  data.SerializeToString(value.mutable_metadata()->mutable_plugin_data()->mutable_content());
  return event;
}

// The config as a text, which TensorBoard reads as Markdown: lines of code are indented.
proto::TensorBoardEvent config_event(const std::string& config, int64_t step) {
  proto::TensorBoardEvent event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  proto::TensorBoardEvent::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("config");
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_metadata()->set_data_class(kTensorClass);
  value.mutable_tensor()->set_dtype(kStringType);
  std::string& text = *value.mutable_tensor()->add_string_val();
  Lines lines(config);
  for (std::string_view line; lines.next(&line);) text.append("    ").append(line).append("\n");
  return event;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder,
                                     int64_t resume_step,
                                     int64_t total_steps,
                                     const std::function<void()>& check,
                                     const TensorBoardRun& run)
    : has_older_events_(has_events(folder)),
      path_(event_path(folder)),
      file_(path_, check),
      every_(std::max<int64_t>(1, (total_steps + kMaxPoints - 1) / kMaxPoints)) {
  proto::TensorBoardEvent event;
  event.set_wall_time(seconds_since_1970());
  event.set_file_version("brain.Event:2");
  append_event(file_, event);
  if (resume_step > 0 || has_older_events_) {
    event.set_step(resume_step + 1);
    event.mutable_session_log()->set_status(1);
    append_event(file_, event);
  }
  if (!run.config.empty()) describe(run, resume_step);
  file_.flush();
}

void TensorBoardWriter::describe(const TensorBoardRun& run, int64_t step) {
  append_event(file_, config_event(run.config, step));
  proto::TensorBoardHparams experiment, start;
  for (const char* metric : kComparedMetrics)
    experiment.mutable_experiment()->add_metric_infos()->mutable_name()->set_tag(metric);
  start.mutable_session_start_info()->set_start_time_secs(seconds_since_1970());
  for (const auto& [name, value] : run.hparams) {
    const double* number = std::get_if<double>(&value);
    proto::TensorBoardHparams::Info& info = *experiment.mutable_experiment()->add_hparam_infos();
    info.set_name(name);
    info.set_type(number != nullptr ? kNumberHparam : kStringHparam);
    proto::TensorBoardHparams::Value& mine =
        (*start.mutable_session_start_info()->mutable_hparams())[name];
    if (number != nullptr)
      mine.set_number_value(*number);
    else
      mine.set_string_value(std::get<std::string>(value));
  }
  append_event(file_, hparams_event("_hparams_/experiment", experiment));
  append_event(file_, hparams_event("_hparams_/session_start_info", start));
  describes_ = true;
}

void TensorBoardWriter::append(const StepRecord& record) {
  const bool training = record.step % every_ == 0;
  last_.reset();
  if (!training) last_ = record;
  if (training || record.eval_loss || record.eval_accuracy) write(record, training);
}

void TensorBoardWriter::finish(bool done) {
  if (last_) {
    last_->eval_loss.reset();
    last_->eval_accuracy.reset();
    last_->eval_top5_accuracy.reset();
    last_->eval_perplexity.reset();
    last_->eval_task = {};
    write(*last_, true);
    last_.reset();
  }
  if (done && std::exchange(describes_, false)) {
    proto::TensorBoardHparams end;
    end.mutable_session_end_info()->set_status(kSuccess);
    end.mutable_session_end_info()->set_end_time_secs(seconds_since_1970());
    append_event(file_, hparams_event("_hparams_/session_end_info", end));
  }
  file_.finish();
}

void TensorBoardWriter::write(const StepRecord& record, bool training) {
  proto::TensorBoardEvent event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(record.step);
  const auto scalar = [&](std::string tag, double value) {
    proto::TensorBoardEvent::Value& entry = *event.mutable_summary()->add_value();
    entry.set_tag(std::move(tag));
    entry.set_simple_value(static_cast<float>(value));
  };
  if (training) {
    scalar("train/loss", record.loss);
    scalar("train/lr", record.lr);
    scalar("train/grad_norm", record.grad_norm);
    scalar("throughput/samples_per_s", record.samples_per_s);
    if (!(record.tokens_per_s < 0)) scalar("throughput/tokens_per_s", record.tokens_per_s);
    if (!(record.mfu < 0)) scalar("throughput/mfu", record.mfu);
    scalar("time/step_ms", record.step_ms);
    if (record.predicted_step_ms > 0) scalar("time/predicted_step_ms", record.predicted_step_ms);
    if (record.forecast_error) scalar("time/forecast_error", *record.forecast_error);
    scalar("time/compute_ms", record.compute_ms);
    scalar("time/comm_exposed_ms", record.comm_exposed_ms);
    scalar("time/straggler_ms", record.straggler_ms);
    scalar("time/data_wait_ms", record.data_wait_ms);
    scalar("time/optimizer_ms", record.optimizer_ms);
  }
  if (training && record.devices) {
    for (const DeviceNumber& number : kDeviceNumbers)
      if ((*record.devices).*number.value >= 0)
        scalar("gpu/" + std::string(number.name).substr(4), (*record.devices).*number.value);
    for (const DeviceCount& count : kDeviceCounts)
      if ((*record.devices).*count.value >= 0)
        scalar("gpu/" + std::string(count.name).substr(4),
               static_cast<double>((*record.devices).*count.value));
  }
  if (training && record.energy) {
    scalar("energy/joules_per_step", record.energy->joules_per_step);
    scalar("energy/total_joules", record.energy->total_joules);
  }
  if (record.eval_loss) scalar("eval/loss", *record.eval_loss);
  if (record.eval_accuracy) scalar("eval/accuracy", *record.eval_accuracy);
  if (record.eval_top5_accuracy) scalar("eval/top5_accuracy", *record.eval_top5_accuracy);
  if (record.eval_perplexity) scalar("eval/perplexity", *record.eval_perplexity);
  for (int i = 0; i < kTaskMetricCount; ++i) {
    const auto& value = record.eval_task[static_cast<size_t>(i)];
    if (value) scalar(std::string("eval/") + short_name_of(static_cast<TaskMetric>(i)), *value);
  }
  append_event(file_, event);
}

}  // namespace lockstep::metrics
