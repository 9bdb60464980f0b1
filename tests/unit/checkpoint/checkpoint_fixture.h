#pragma once
// A small run that can be saved by any number of ranks, and what is needed to damage what it saved.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/rng.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/checkpoint/format/writer.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

using testing::TemporaryFolder;

inline std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void set_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::vector<float> random_values(int64_t count, uint32_t purpose) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = uniform_from_word(philox_word({7, 0, 0, purpose}, i)) - 0.5f;
  }
  return values;
}

struct SampleRun {
  std::vector<NamedSlice> layout;
  int64_t flat_elements = 0;
  std::vector<float> weights, exp_avg, exp_avg_sq;  // (flat_elements)

  // Slices are padded to a multiple of `alignment` elements; padding is zero.
  explicit SampleRun(const std::vector<std::pair<std::string, Shape>>& parameters,
                     int64_t alignment = 8) {
    for (const auto& [name, shape] : parameters) {
      layout.push_back({name, shape, flat_elements});
      flat_elements += (shape.elements() + alignment - 1) / alignment * alignment;
    }
    for (std::vector<float>* buffer : {&weights, &exp_avg, &exp_avg_sq}) {
      buffer->assign(static_cast<size_t>(flat_elements), 0.0f);
    }
    uint32_t purpose = 0;
    for (const NamedSlice& slice : layout) {
      for (std::vector<float>* buffer : {&weights, &exp_avg, &exp_avg_sq}) {
        const std::vector<float> values = random_values(slice.shape.elements(), ++purpose);
        std::copy(values.begin(), values.end(), buffer->begin() + slice.offset);
      }
    }
  }

  // What rank `rank` of `ranks` owns: one part of each of two buckets, so that every rank has two
  // ranges. Ranges are [begin, end).
  std::vector<std::pair<int64_t, int64_t>> owned(int64_t rank, int64_t ranks) const {
    const int64_t border = flat_elements / 3;
    const auto part = [&](int64_t begin, int64_t end) {
      const int64_t size = end - begin;
      return std::pair(begin + size * rank / ranks, begin + size * (rank + 1) / ranks);
    };
    return {part(0, border), part(border, flat_elements)};
  }

  FileRecord write_shard(const CheckpointWriter& writer, int64_t rank, int64_t ranks) const {
    MomentShard first{"exp_avg", {}}, second{"exp_avg_sq", {}};
    for (const auto& [begin, end] : owned(rank, ranks)) {
      const size_t size = static_cast<size_t>(end - begin);
      first.slices.push_back({begin, {exp_avg.data() + begin, size}});
      second.slices.push_back({begin, {exp_avg_sq.data() + begin, size}});
    }
    return writer.write_optimizer_shard(rank, ranks, {first, second});
  }

  CheckpointState state(int64_t step, int64_t ranks, std::vector<FileRecord> files) const {
    CheckpointState state;
    state.step = step;
    state.samples = step * 32;
    state.seed = 0xfedcba9876543210u;
    state.lanes = 8;
    state.ranks = ranks;
    state.global_batch = 32;
    state.lockstep_version = "0.1.0";
    state.weights_hash = 0x0123456789abcdefu;
    state.config_hash = hash_text("name: \"sample\"");
    state.optimizer = "adamw";
    state.moments = {"exp_avg", "exp_avg_sq"};
    state.flat_elements = flat_elements;
    state.layout = layout;
    state.best_metric = 0.1 + 0.2;
    state.best_step = step / 2;
    state.evals_since_best = 3;
    state.extra = {{"loss_scale", "65536"}};
    state.files = std::move(files);
    return state;
  }

  // Saves with `ranks` ranks, each a thread, as the trainer does it; returns the final folder.
  fs::path save(const fs::path& root, int64_t step, int64_t ranks) const {
    const CheckpointWriter lead = CheckpointWriter::begin(root, step);
    std::vector<FileRecord> records(static_cast<size_t>(ranks) + 1);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const CheckpointWriter writer = CheckpointWriter::join(root, step);
        records[static_cast<size_t>(rank) + 1] =
            parse_file_record(serialize(write_shard(writer, rank, ranks)));
      });
    }
    records[0] = lead.write_model(layout, weights.data());
    for (std::thread& thread : threads) thread.join();
    return lead.commit(state(step, ranks, std::move(records)));
  }

  // Reads everything as `ranks` ranks do; throws or gives buffers in this run's layout.
  SampleRun load(const fs::path& folder, int64_t ranks) const {
    SampleRun loaded = *this;
    for (std::vector<float>* buffer : {&loaded.weights, &loaded.exp_avg, &loaded.exp_avg_sq}) {
      std::fill(buffer->begin(), buffer->end(), -1.0f);
    }
    const CheckpointState state = read_state(folder);
    read_model(folder, state, layout, loaded.weights.data());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<MomentTarget> first, second;
      for (const auto& [begin, end] : owned(rank, ranks)) {
        const size_t size = static_cast<size_t>(end - begin);
        first.push_back({begin, {loaded.exp_avg.data() + begin, size}});
        second.push_back({begin, {loaded.exp_avg_sq.data() + begin, size}});
      }
      read_optimizer(folder, state, layout, "exp_avg", first);
      read_optimizer(folder, state, layout, "exp_avg_sq", second);
    }
    return loaded;
  }

  // Equal weights in every slice (padding of weights is not stored) and equal moments, padding
  // included.
  void expect_equal(const SampleRun& other) const {
    for (const NamedSlice& slice : layout) {
      for (int64_t i = slice.offset; i < slice.offset + slice.shape.elements(); ++i) {
        ASSERT_EQ(weights[static_cast<size_t>(i)], other.weights[static_cast<size_t>(i)])
            << slice.name;
      }
    }
    EXPECT_EQ(exp_avg, other.exp_avg);
    EXPECT_EQ(exp_avg_sq, other.exp_avg_sq);
  }
};

inline SampleRun sample_run() {
  return SampleRun({{"head.weight", {3, 11}},
                    {"head.bias", {3}},
                    {"body.weight", {11, 5}},
                    {"scale", {}},
                    {"body.bias", {11}}});
}

// The message of the CheckpointError or IoError that `action` throws; empty if it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::checkpoint
