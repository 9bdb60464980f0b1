#pragma once
// Files for the tests of data sources.

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/dataset.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::test {

using testing::TemporaryFolder;

// Traits of models as models/ would give them.
inline config::ModelTraits mlp(Loss loss = Loss::kSoftmaxCrossEntropy, int64_t outputs = 0) {
  return {
      .section = "mlp", .input = config::ModelInput::kFeatures, .loss = loss, .outputs = outputs};
}
inline config::ModelTraits gpt(int64_t context, int64_t vocabulary = 0) {
  return {.section = "gpt",
          .input = config::ModelInput::kTokens,
          .context = context,
          .outputs = vocabulary,
          .outputs_field = "vocabulary"};
}

// The data of a config for a model of images.
inline data::OpenedData open_images(const DataConfig& config, uint64_t seed, bool need_train) {
  return data::open_data(
      config, {.section = "resnet", .input = config::ModelInput::kImages}, seed, need_train);
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Input and target of one sample.
template <typename Input, typename Target>
struct Sample {
  std::vector<Input> input;
  std::vector<Target> target;
};

template <typename Input, typename Target>
Sample<Input, Target> read(const data::Dataset& dataset, data::SampleKey key) {
  Sample<Input, Target> sample;
  sample.input.resize(dataset.input().shape.elements());
  sample.target.resize(dataset.target().shape.elements());
  EXPECT_EQ(sample.input.size() * sizeof(Input), dataset.input().bytes());
  EXPECT_EQ(sample.target.size() * sizeof(Target), dataset.target().bytes());
  dataset.read(key,
               reinterpret_cast<std::byte*>(sample.input.data()),
               reinterpret_cast<std::byte*>(sample.target.data()));
  return sample;
}

// The message of the Error that `action` throws, which must have the exit code `code`.
template <typename Action>
std::string error_of(Action&& action, ExitCode code = ExitCode::kData) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

// Checks that an error message has all `parts`.
inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

}  // namespace lockstep::test
