#pragma once
// A data set of 200 different samples in each format.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "images.h"
#include "runtime/base/checksum.h"
#include "runtime/data/format.h"
#include "runtime/data/images/record_file.h"
#include "tars.h"
#include "texts.h"

namespace lockstep::test::sources {

using data::Dataset;
using data::DataSource;
using Names = std::vector<std::string>;

inline constexpr int kSamples = 200;

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}
inline std::string big_endian(uint32_t value) {
  std::string text = little_endian(value, 4);
  std::ranges::reverse(text);
  return text;
}

// Three of eight letters, words of kVocabulary.
inline std::string words(int i) {
  return fmt::format("{} {} {}", "abcdefgh"[i / 64], "abcdefgh"[i / 8 % 8], "abcdefgh"[i % 8]);
}
inline std::string png(int i) { return encode_png(make_image(8, 8, 3, i)); }

inline std::string add_png(const std::filesystem::path& path, int i) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << png(i);
  return path.string();
}

// A source that trains on a file, several files or a folder.
template <typename Source, typename Names>
Source train_on(const Names& train) {
  Source source;
  source.train = train;
  return source;
}

inline DataSource idx(const TemporaryFolder& folder) {
  std::string images =
      std::string("\0\0\x08\x03", 4) + big_endian(kSamples) + big_endian(2) + big_endian(2);
  std::string labels = std::string("\0\0\x08\x01", 4) + big_endian(kSamples);
  for (int i = 0; i < kSamples; ++i) {
    images += little_endian(static_cast<uint64_t>(i), 4);
    labels += static_cast<char>(i % 3);
  }
  IdxConfig config;
  config.train_images = folder.write("images", images);
  config.train_labels = folder.write("labels", labels);
  return config;
}

inline std::string npy(const std::string& descr,
                       const std::string& shape,
                       const std::string& values) {
  const std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}\n", descr, shape);
  return std::string("\x93NUMPY\1\0", 8) + little_endian(header.size(), 2) + header + values;
}

inline DataSource npy_source(const TemporaryFolder& folder, bool images) {
  std::string inputs, labels;
  for (int i = 0; i < kSamples; ++i) {
    const float value = static_cast<float>(i);
    inputs += images ? little_endian(static_cast<uint64_t>(i), 4)
                     : std::string(reinterpret_cast<const char*>(&value), 4);
    labels += static_cast<char>(i % 3);
  }
  const std::string shape =
      images ? fmt::format("({}, 2, 2)", kSamples) : fmt::format("({}, 1)", kSamples);
  NpyConfig config;
  config.train_inputs = folder.write("x.npy", npy(images ? "|u1" : "<f4", shape, inputs));
  config.train_labels = folder.write("y.npy", npy("|u1", fmt::format("({},)", kSamples), labels));
  return config;
}

inline std::string cifar_record(int i, char label) {
  std::string record(1 + 3072, static_cast<char>(i));
  record[0] = label;
  return record;
}

inline DataSource cifar(const TemporaryFolder& folder) {
  std::string records;
  for (int i = 0; i < kSamples; ++i) records += cifar_record(i, static_cast<char>(i % 10));
  return train_on<CifarConfig>(Names{folder.write("train", records)});
}

inline DataSource image_folder(const TemporaryFolder& folder) {
  for (int i = 0; i < kSamples; ++i)
    add_png(folder.path() / fmt::format("train/class{}/{}.png", i % 3, i), i);
  return train_on<ImageFolderConfig>("train");
}

// Two shards.
inline DataSource tar_shards(const TemporaryFolder& folder) {
  std::vector<std::pair<std::string, std::string>> members[2];
  for (int i = 0; i < kSamples; ++i) {
    auto& shard = members[i < kSamples / 4 ? 0 : 1];
    shard.emplace_back(fmt::format("{}.png", i), png(i));
    shard.emplace_back(fmt::format("{}.cls", i), std::to_string(i % 3));
  }
  return train_on<TarShardsConfig>(
      Names{folder.write("a.tar", tar_of(members[0])), folder.write("b.tar", tar_of(members[1]))});
}

inline DataSource records(const TemporaryFolder& folder) {
  data::RecordWriter writer(folder.path() / "train.rec");
  for (int i = 0; i < kSamples; ++i) {
    const std::string image = png(i);
    writer.add(bytes_of(image), i % 3, {});
  }
  writer.finish(3, {});
  return train_on<RecordsConfig>("train.rec");
}

inline DataSource table(const TemporaryFolder& folder) {
  std::string rows = "x,y\n";
  for (int i = 0; i < kSamples; ++i) rows += fmt::format("{},{}\n", i, i % 2 == 0 ? "no" : "yes");
  auto config = train_on<TableConfig>(folder.write("t.csv", rows));
  config.target = "y";
  return config;
}

inline DataSource text(const TemporaryFolder& folder) {
  std::string letters;
  for (int i = 0; i < 8 * kSamples; ++i)
    letters += static_cast<char>('A' + (static_cast<uint32_t>(i) * 2654435761U >> 16) % 61);
  return train_on<TextConfig>(folder.write("t.txt", letters));
}

inline DataSource tokens(const TemporaryFolder& folder, TokensConfig::Packing packing) {
  constexpr int kTokens = 9;  // of a document
  std::string ids, begins;
  for (int i = 0; i < kSamples; ++i) {
    begins += little_endian(static_cast<uint64_t>(i * kTokens), 8);
    for (int t = 0; t < kTokens; ++t) ids += little_endian(static_cast<uint64_t>(i + t * t), 2);
  }
  auto config = train_on<TokensConfig>(folder.write("t.bin", ids));
  config.packing = packing;
  if (packing != TokensConfig::Packing::kNone)
    config.train_documents = folder.write("t.documents", begins);
  return config;
}

inline DataSource labelled_text(const TemporaryFolder& folder) {
  std::string rows = "text\tlabel\n";
  for (int i = 0; i < kSamples; ++i) rows += fmt::format("{}\t{}\n", words(i), i % 2);
  auto config = train_on<LabelledTextConfig>(folder.write("t.tsv", rows));
  config.tokenizer = folder.write("vocab.txt", kVocabulary);
  return config;
}

inline DataSource tagged_text(const TemporaryFolder& folder) {
  std::string lines;
  for (int i = 0; i < kSamples; ++i)
    lines += fmt::format(
        "{} X\n{} Y\n{} Z\n\n", "abcdefgh"[i / 64], "abcdefgh"[i / 8 % 8], "abcdefgh"[i % 8]);
  auto config = train_on<TaggedTextConfig>(folder.write("t.conll", lines));
  config.tokenizer = folder.write("vocab.txt", kVocabulary);
  return config;
}

inline DataSource conversations(const TemporaryFolder& folder) {
  std::string lines;
  for (int i = 0; i < kSamples; ++i)
    lines += fmt::format("{{\"prompt\": \"{} a\", \"completion\": \"a\"}}\n", words(i));
  auto config = train_on<ConversationsConfig>(folder.write("t.jsonl", lines));
  config.tokenizer = folder.write("vocab.txt", kVocabulary);
  config.padded = true;
  return config;
}

inline DataSource preferences(const TemporaryFolder& folder) {
  std::string lines;
  for (int i = 0; i < kSamples; ++i)
    lines +=
        fmt::format("{{\"prompt\": \"{}\", \"chosen\": \" a\", \"rejected\": \" b\"}}\n", words(i));
  auto config = train_on<PreferencesConfig>(folder.write("t.jsonl", lines));
  config.tokenizer = folder.write("vocab.txt", kVocabulary);
  return config;
}

inline DataSource masked_images(const TemporaryFolder& folder) {
  for (int i = 0; i < kSamples; ++i) {
    add_png(folder.path() / fmt::format("images/{}.png", i), i);
    std::filesystem::create_directory(folder.path() / "masks");
    folder.write(fmt::format("masks/{}.png", i),
                 encode_png(8, 8, std::vector<uint8_t>(64, i % 3), {.type = PNG_COLOR_TYPE_GRAY}));
  }
  auto config = train_on<MaskedImagesConfig>("images");
  config.train_masks = "masks";
  return config;
}

inline DataSource text_pairs(const TemporaryFolder& folder) {
  std::string rows = "anchor\tpositive\n";
  for (int i = 0; i < kSamples; ++i) rows += fmt::format("{}\t{} a\n", words(i), words(i));
  auto config = train_on<TextPairsConfig>(folder.write("t.tsv", rows));
  config.tokenizer = folder.write("vocab.txt", kVocabulary);
  return config;
}

// Frames (2, 2).
inline DataSource transcripts(const TemporaryFolder& folder) {
  std::string lines;
  for (int i = 0; i < kSamples; ++i) {
    const float value[] = {static_cast<float>(i), 0, 0, 1};
    folder.write(fmt::format("{}.npy", i),
                 npy("<f4", "(2, 2)", {reinterpret_cast<const char*>(value), sizeof(value)}));
    lines += fmt::format("{{\"frames\": \"{}.npy\", \"text\": \"{}\"}}\n", i, "ab"[i % 2]);
  }
  return train_on<TranscriptsConfig>(folder.write("t.jsonl", lines));
}

inline DataSource synthetic(const TemporaryFolder&) {
  return SyntheticConfig{.samples = kSamples, .features = 4, .classes = 3, .height = 4, .width = 4};
}

// So many tokens that no two samples are alike.
inline SyntheticConfig many_tokens() { return {.samples = kSamples, .classes = 100'000}; }

// The contents of each sample.
inline std::vector<uint64_t> contents(const Dataset& dataset) {
  std::vector<uint64_t> found;
  std::vector<std::byte> sample(dataset.input().bytes() + dataset.target().bytes());
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read({.index = i}, sample.data(), sample.data() + dataset.input().bytes());
    found.push_back(lockstep::checksum_of(sample.data(), sample.size()));
  }
  return found;
}

}  // namespace lockstep::test::sources
