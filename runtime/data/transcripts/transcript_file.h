#pragma once
// Reads a file of transcripts: each record has the path of a .npy file of frames, and their text.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/transcripts/symbols.h"

namespace lockstep::data {

// The samples of a file. Frames stay in their files, which read() opens.
struct Transcripts {
  std::string name;                // of the file of transcripts
  std::filesystem::path folder;    // its folder
  std::vector<std::string> paths;  // (samples) of the .npy files, relative to the folder
  std::vector<int32_t> frames;     // (samples) in each
  std::vector<int32_t> symbols;    // of all texts, one after the other
  std::vector<size_t> begins;      // (samples + 1) of each text in `symbols`
  std::vector<bool> has_text;      // (samples)
  std::vector<int64_t> lines;      // (samples) in the file, from 1
  std::vector<int64_t> records;    // (samples) see Dataset::record_of()
  int64_t longest = 0;             // symbols of the longest text
  int64_t bad_records = 0;
};

// Collects the characters of all texts of the file that the config field `field` names. Throws
// DataError.
void collect_symbols(const DataConfig& data,
                     const TranscriptsConfig& config,
                     const std::string& path,
                     const std::string& field,
                     Symbols* symbols);

// Reads all records of the file. A record is bad if it is malformed, if its .npy file cannot be
// opened or has not float32 frames (T, F) as the model takes, or if its text has another character
// than the symbols or more symbols than its frames can have. Bad records are handled according to
// data.bad_records. needs_text: otherwise a record without a text, or with an empty one, has no
// target. Throws DataError.
Transcripts read_transcripts(const DataConfig& data,
                             const TranscriptsConfig& config,
                             const config::TranscriptTraits& model,
                             const std::string& path,
                             const std::string& field,
                             const Symbols& symbols,
                             bool needs_text);

// Samples: frames (T F) f32, padded with zeros, and the record (2 + L) i32 of ctc_loss.h, L =
// max_symbols; its frames are those of the output.
std::unique_ptr<Dataset> make_transcript_dataset(Transcripts transcripts,
                                                 const config::TranscriptTraits& model,
                                                 int64_t max_symbols);

// The shapes of such samples.
SampleSpec transcript_input(const config::TranscriptTraits& model);
SampleSpec transcript_target(int64_t max_symbols);

}  // namespace lockstep::data
