#include "runtime/metrics/tensorboard.h"

#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "runtime/base/error.h"
#include "runtime/metrics/event.pb.h"

namespace lockstep::metrics {
namespace {

// The prefix of the name of every event file.
constexpr const char* kEvents = "events.out.tfevents.";
// Max steps with training scalars; about 5 MB.
constexpr int64_t kMaxPoints = 10'000;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::filesystem::path event_path(const std::filesystem::path& folder) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof(host) - 1) != 0) std::strcpy(host, "localhost");
  return folder /
         fmt::format(
             "{}{:010}.{}.{}", kEvents, static_cast<int64_t>(wall_seconds()), host, ::getpid());
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

// TFRecord framing: length, its checksum, data, its checksum; little-endian.
void append_event(BufferedFile& file, const proto::TensorBoardEvent& event) {
  const uint64_t length = event.ByteSizeLong();
  LOCKSTEP_CHECK(length + 16 <= BufferedFile::kMaxRecordBytes);
  char* out = file.reserve();
  char* data = out + 12;
  event.SerializeToArray(data, static_cast<int>(length));
  std::memcpy(out, &length, 8);
  const uint32_t length_crc = masked_crc32c(out, 8), data_crc = masked_crc32c(data, length);
  std::memcpy(out + 8, &length_crc, 4);
  std::memcpy(data + length, &data_crc, 4);
  file.commit(data + length + 4);
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder,
                                     int64_t resume_step,
                                     int64_t total_steps,
                                     const std::function<void()>& check)
    : has_older_events_(has_events(folder)),
      path_(event_path(folder)),
      file_(path_, check),
      every_(std::max<int64_t>(1, (total_steps + kMaxPoints - 1) / kMaxPoints)) {
  proto::TensorBoardEvent event;
  event.set_wall_time(wall_seconds());
  event.set_file_version("brain.Event:2");
  append_event(file_, event);
  if (resume_step > 0 || has_older_events_) {
    event.set_step(resume_step + 1);
    event.mutable_session_log()->set_status(1);
    append_event(file_, event);
  }
  file_.flush();
}

void TensorBoardWriter::append(const StepRecord& record) {
  const bool training = record.step % every_ == 0;
  last_.reset();
  if (!training) last_ = record;
  if (training || record.eval_loss || record.eval_accuracy) write(record, training);
}

void TensorBoardWriter::finish() {
  if (last_) {
    last_->eval_loss.reset();
    last_->eval_accuracy.reset();
    last_->eval_top5_accuracy.reset();
    last_->eval_perplexity.reset();
    last_->eval_task = {};
    write(*last_, true);
    last_.reset();
  }
  file_.finish();
}

void TensorBoardWriter::write(const StepRecord& record, bool training) {
  proto::TensorBoardEvent event;
  event.set_wall_time(wall_seconds());
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
