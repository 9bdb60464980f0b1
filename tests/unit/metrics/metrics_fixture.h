#pragma once
// What the tests of metrics share.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/metrics/step_record.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::metrics {

namespace fs = std::filesystem;

using testing::TemporaryFolder;

inline std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline StepRecord sample_record(int64_t step) {
  StepRecord record;
  record.step = step;
  record.epoch = 0.125 * static_cast<double>(step);
  record.samples = step * 32;
  record.loss = 2.5 / static_cast<double>(step);
  record.lr = 0.001;
  record.grad_norm = 1.25;
  record.step_ms = 12.3456;
  record.compute_ms = 10;
  record.comm_exposed_ms = 0.5;
  record.straggler_ms = 0.125;
  record.data_wait_ms = 0.0004;
  record.optimizer_ms = 1.8;
  record.samples_per_s = 2592.123;
  return record;
}

// Operator new calls of this thread so far; counted by allocation_counter.cc.
uint64_t allocations();

}  // namespace lockstep::metrics
