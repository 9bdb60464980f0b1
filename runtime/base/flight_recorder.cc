#include "runtime/base/flight_recorder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/mapping_fault.h"

namespace lockstep {
namespace {

int64_t wall_ns() {
  timespec time;
  ::clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void* map(int descriptor, size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

FlightRecorder& FlightRecorder::here() {
  // Never destroyed: other threads write until the very end.
  static FlightRecorder* const recorder = new FlightRecorder;
  return *recorder;
}

uint64_t DevicePoint::label(FlightOp op, int bucket) {
  constexpr int64_t kMax = (int64_t{1} << kBucketBits) - 1;
  const auto stored = static_cast<uint64_t>(std::clamp<int64_t>(int64_t{bucket} + 1, 0, kMax));
  return stored << kOpBits | static_cast<uint64_t>(op);
}

DevicePoint DevicePoint::of(uint64_t word) {
  constexpr uint64_t kOp = (uint64_t{1} << kOpBits) - 1, kBucket = (uint64_t{1} << kBucketBits) - 1;
  return {word >> kLabelBits,
          static_cast<int32_t>(word >> kOpBits & kBucket) - 1,
          static_cast<FlightOp>(word & kOp)};
}

std::filesystem::path flight_path(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank-{}.ring", rank);
}

void FlightRecorder::open(const std::filesystem::path& folder, int rank, int ranks) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "read by other processes");
  const std::filesystem::path path = flight_path(folder, rank);
  const auto fail = [&](const char* what, int error) { throw IoError(what, path, error); };
  ::unlink(path.c_str());  // a reader that has the file of an earlier start open keeps it
  const int descriptor = open_to_write(path, O_RDWR | O_CREAT | O_EXCL);
  // Allocate everything now. If the disk were full later, writing to the map would end the process.
  const int error = ::posix_fallocate(descriptor, 0, sizeof(FlightRing));
  void* const memory = error == 0 ? map(descriptor, sizeof(FlightRing)) : nullptr;
  const int map_error = errno;
  ::close(descriptor);
  if (memory == nullptr) {
    ::unlink(path.c_str());
    fail("map", error != 0 ? error : map_error);
  }
  // Copy-on-write file systems may need more space later even so.
  shield_mapping(memory, sizeof(FlightRing));
  FlightRing* const ring = new (memory) FlightRing;
  FlightHeader& header = ring->header;
  header.rank = rank;
  header.ranks = ranks;
  header.process = ::getpid();
  header.begin_ns = wall_ns();
  host_name().copy(header.host, sizeof(header.host) - 1);
  header.phase = header_->phase.load();
  header.magic.store(FlightHeader::kMagic, std::memory_order_release);
  folder_ = folder;
  last_ = {};
  ring_ = ring;  // the ring of an earlier open() stays mapped: a thread may be writing to it
  header_ = &header;
}

bool FlightRecorder::claim_report() const {
  if (folder_.empty()) return true;
  const int descriptor =
      ::open((folder_ / "told").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0 || errno != EEXIST;
}

void FlightRecorder::report(const FlightFinding& finding) {
  header_->found_rank = finding.rank;
  finding.text.copy(header_->found_text, sizeof(header_->found_text) - 1);
  header_->found.store(1, std::memory_order_release);
}

void FlightRecorder::keep_alive() {
  header_->alive.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (device_ != nullptr) header_->device.store(device_->load());
}

void FlightRecorder::watch_device(const std::atomic<uint64_t>* word) {
  const std::lock_guard lock(mutex_);
  device_ = word;
}

void FlightRecorder::wait_for_device(double seconds, bool late) {
  header_->device_wait_s.store(static_cast<float>(seconds), std::memory_order_relaxed);
  header_->device_late.store(late ? 1 : 0, std::memory_order_release);
}

void FlightRecorder::name_buckets(std::vector<std::string> names) {
  const std::lock_guard lock(mutex_);
  bucket_names_ = std::move(names);
}

std::string FlightRecorder::name_of_bucket(int bucket) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(bucket);
  if (bucket < 0 || index >= bucket_names_.size()) return fmt::format("bucket {}", bucket);
  return fmt::format("bucket {} ({})", bucket, bucket_names_[index]);
}

void FlightRecorder::begin_phase(FlightPhase phase) {
  header_->phase.store(phase, std::memory_order_relaxed);
  beat();
}

void FlightRecorder::begin_step(int64_t done) {
  if (header_->first_step.load(std::memory_order_relaxed) < 0)
    header_->first_step.store(done, std::memory_order_relaxed);
  header_->step.store(done, std::memory_order_relaxed);
  beat();
}

void FlightRecorder::note(FlightOp op, FlightState state, uint64_t collective, size_t bytes) {
  if (ring_ == nullptr) return;
  const uint64_t position = header_->entries.load(std::memory_order_relaxed);
  ring_->entries[position % FlightHeader::kEntries] = {
      wall_ns(),
      header_->step.load(std::memory_order_relaxed),
      collective,
      bytes,
      bucket_,
      op,
      state,
      header_->phase.load(std::memory_order_relaxed)};
  header_->entries.store(position + 1, std::memory_order_release);
  beat();
}

void FlightRecorder::note_start(FlightOp op, size_t bytes) {
  last_.number += 1;
  for (const uint64_t word : {static_cast<uint64_t>(op), static_cast<uint64_t>(bytes)})
    last_.history = (std::rotl(last_.history, 23) ^ word) * 0x9e3779b97f4a7c15ULL;
  last_.bytes = bytes;
  last_.bucket = bucket_;
  last_.op = op;
  ring_->starts[last_.number % FlightHeader::kEntries] = last_;
  header_->begun.store(last_.number, std::memory_order_release);
}

uint64_t FlightRecorder::begin(FlightOp op, size_t bytes) {
  if (ring_ == nullptr) return 0;
  note_start(op, bytes);
  note(op, FlightState::kStarted, last_.number, bytes);
  return last_.number;
}

uint64_t FlightRecorder::begin_waiting(FlightOp op, size_t bytes) {
  if (ring_ == nullptr) return 0;
  note_start(op, bytes);
  wait(last_.number, op, bytes);
  return last_.number;
}

void FlightRecorder::wait(uint64_t collective, FlightOp op, size_t bytes) {
  note(op, FlightState::kWaiting, collective, bytes);
  header_->waiting.store(1, std::memory_order_release);
}

void FlightRecorder::end(uint64_t collective, FlightOp op, size_t bytes) {
  header_->waiting.store(0, std::memory_order_release);
  note(op, FlightState::kDone, collective, bytes);
}

}  // namespace lockstep
