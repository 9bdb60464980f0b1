#include "runtime/data/transcripts/transcript_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/images/npy_array.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/text_table.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::data {
namespace {

enum Cell { kFramesCell, kTextCell };

// The frames of a .npy file: an array (T, F) f32.
struct FramesFile {
  // Throws DataError if the file cannot be read or has something else.
  FramesFile(const std::string& path, const config::TranscriptTraits& model)
      : file("", path, "transcripts", SourceFile::Gzip::kNever),
        array(parse_npy(file.bytes(), file.name())) {
    if (array.type != NpyType::kFloat32 || array.extents.size() != 2)
      throw DataError("{} has {} with {} dimensions; allowed: float32 (frames, features)",
                      path,
                      name_of(array.type),
                      array.extents.size());
    if (array.extents[1] != model.features)
      throw DataError("{} has {} features in a frame; the network takes {}",
                      path,
                      array.extents[1],
                      model.features);
    if (array.extents[0] > model.frames)
      throw DataError(
          "{} has {} frames; the network takes at most {}", path, array.extents[0], model.frames);
  }

  SourceFile file;
  NpyArray array;
};

// Reads the rows of a file of transcripts.
class Rows {
 public:
  Rows(const DataConfig& data,
       const TranscriptsConfig& config,
       const std::string& path,
       const std::string& field,
       bool needs_text)
      : file_(data.dir, path, "transcripts." + field, SourceFile::Gzip::kDecompress),
        table_(text_in(file_.bytes(), file_.name()),
               file_.name(),
               text_table_kind(path, "data.transcripts." + field),
               {{"data.transcripts.frames", config.frames},
                {"data.transcripts.text",
                 config.text,
                 needs_text ? TextColumn::Use::kRequired : TextColumn::Use::kOptional}},
               /*quotes=*/true) {}

  const std::string& name() const { return file_.name(); }
  bool next(TextTableRow* row) {
    if (!table_.next(row)) return false;
    table_.parse(row);
    if (!row->problem.empty()) return true;
    const std::string& text = row->cells[kTextCell];
    if (tokenizer::valid_utf8_bytes(text) < text.size()) row->problem = "its text is not UTF-8";
    return true;
  }

 private:
  SourceFile file_;
  TextTable table_;
};

int64_t repetitions(const std::vector<int32_t>& symbols) {
  int64_t count = 0;
  for (size_t i = 1; i < symbols.size(); ++i) count += symbols[i] == symbols[i - 1];
  return count;
}

class Reader {
 public:
  Reader(const DataConfig& data,
         const TranscriptsConfig& config,
         const config::TranscriptTraits& model,
         const Symbols& symbols,
         bool needs_text,
         Rows* rows)
      : config_(config),
        model_(model),
        symbols_(symbols),
        needs_text_(needs_text),
        rows_(*rows),
        bad_(data, rows->name()) {
    read_.name = rows->name();
    read_.folder = std::filesystem::path(rows->name()).parent_path();
    read_.begins.push_back(0);
  }

  Transcripts read() {
    int64_t records = 0;
    for (TextTableRow row; rows_.next(&row); ++records) {
      if (row.problem.empty()) add(&row, records);
      if (!row.problem.empty()) bad_.add(row.line, row.problem);
    }
    bad_.require_fraction(records);
    if (read_.paths.empty()) throw DataError("{}: has no good records", rows_.name());
    for (int64_t times = bad_.take_pending(); times > 0; --times) add_last_again();
    read_.bad_records = bad_.count();
    return std::move(read_);
  }

 private:
  void add(TextTableRow* row, int64_t record) {
    const std::string& path = row->cells[kFramesCell];
    int64_t frames = 0;
    try {
      frames = FramesFile((read_.folder / path).string(), model_).array.extents[0];
    } catch (const DataError& error) {
      row->problem = error.what();
      return;
    }
    const std::string& text = row->cells[kTextCell];
    const bool has_text = needs_text_ || !text.empty();
    row->problem = symbols_.split(text, &text_);
    if (row->problem.empty()) row->problem = problem_of_length(frames);
    if (!row->problem.empty()) return;
    for (int64_t times = bad_.take_pending() + 1; times > 0; --times) {
      read_.paths.push_back(path);
      read_.frames.push_back(static_cast<int32_t>(frames));
      read_.symbols.insert(read_.symbols.end(), text_.begin(), text_.end());
      read_.begins.push_back(read_.symbols.size());
      read_.has_text.push_back(has_text);
      read_.lines.push_back(row->line);
      read_.records.push_back(record);
    }
    read_.longest = std::max(read_.longest, static_cast<int64_t>(text_.size()));
  }

  std::string problem_of_length(int64_t frames) const {
    const auto count = static_cast<int64_t>(text_.size());
    if (config_.max_symbols > 0 && count > config_.max_symbols)
      return fmt::format("its text has {} symbols; data.transcripts.max_symbols is {}",
                         count,
                         config_.max_symbols);
    const int64_t outputs = model_.output_frames_of(frames), repeated = repetitions(text_);
    if (count + repeated <= outputs) return "";
    return fmt::format(
        "its text has {}{}, which need at least {} frames; the network makes {} of its {}",
        counted(count, "symbol"),
        repeated > 0 ? fmt::format(" and {} repeated in a row", repeated) : "",
        count + repeated,
        outputs,
        frames);
  }

  void add_last_again() {
    const std::vector<int32_t> last(
        read_.symbols.begin() + static_cast<std::ptrdiff_t>(*(read_.begins.end() - 2)),
        read_.symbols.end());
    read_.paths.push_back(read_.paths.back());
    read_.frames.push_back(read_.frames.back());
    read_.symbols.insert(read_.symbols.end(), last.begin(), last.end());
    read_.begins.push_back(read_.symbols.size());
    read_.has_text.push_back(read_.has_text.back());
    read_.lines.push_back(read_.lines.back());
    read_.records.push_back(read_.records.back());
  }

  const TranscriptsConfig& config_;
  const config::TranscriptTraits& model_;
  const Symbols& symbols_;
  const bool needs_text_;
  Rows& rows_;
  BadRecordLog bad_;
  Transcripts read_;
  std::vector<int32_t> text_;  // of the current record
};

class TranscriptDataset final : public Dataset {
 public:
  TranscriptDataset(Transcripts transcripts,
                    const config::TranscriptTraits& model,
                    int64_t max_symbols)
      : Dataset(transcript_input(model), transcript_target(max_symbols)),
        samples_(std::move(transcripts)),
        model_(model) {}

  int64_t samples() const override { return static_cast<int64_t>(samples_.paths.size()); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto i = static_cast<size_t>(key.index);
    const FramesFile file(path_of(i), model_);
    if (file.array.extents[0] != samples_.frames[i])
      throw DataError("{} has {} frames; it had {} when the data were opened",
                      path_of(i),
                      file.array.extents[0],
                      samples_.frames[i]);
    const std::span<const std::byte> values = file.array.values;
    std::memcpy(input, values.data(), values.size());
    std::memset(input + values.size(), 0, input_.bytes() - values.size());
    require_finite(key.index, input, values.size() / sizeof(float));
    const size_t begin = samples_.begins[i], count = samples_.begins[i + 1] - begin;
    const int32_t header[] = {static_cast<int32_t>(model_.output_frames_of(samples_.frames[i])),
                              samples_.has_text[i] ? static_cast<int32_t>(count) : -1};
    std::memset(target, 0, target_.bytes());
    std::memcpy(target, header, sizeof(header));
    std::memcpy(target + sizeof(header), samples_.symbols.data() + begin, count * sizeof(int32_t));
  }

  std::vector<std::string> files() const override { return samples_.paths; }
  std::vector<int64_t> lines() const override { return samples_.lines; }
  int64_t record_of(int64_t index) const override {
    return samples_.records[static_cast<size_t>(index)];
  }
  bool is_expensive() const override { return true; }
  std::string name_of(int64_t index) const override {
    return fmt::format("line {} of {}", samples_.lines[static_cast<size_t>(index)], samples_.name);
  }
  int64_t resident_bytes() const override {
    size_t bytes = samples_.symbols.capacity() * sizeof(int32_t);
    for (const std::string& path : samples_.paths)
      bytes +=
          sizeof(path) + path.capacity() + sizeof(int32_t) + sizeof(size_t) + 2 * sizeof(int64_t);
    return static_cast<int64_t>(bytes);
  }

 private:
  std::string path_of(size_t index) const {
    return (samples_.folder / samples_.paths[index]).string();
  }

  void require_finite(int64_t index, const std::byte* input, size_t count) const {
    for (size_t k = 0; k < count; ++k) {
      float value;
      std::memcpy(&value, input + k * sizeof(float), sizeof(float));
      if (std::isfinite(value)) continue;
      const auto features = static_cast<size_t>(model_.features);
      throw DataError("{}: feature {} of frame {} is {}; allowed: finite numbers ({})",
                      path_of(static_cast<size_t>(index)),
                      k % features,
                      k / features,
                      value,
                      name_of(index));
    }
  }

  const Transcripts samples_;
  const config::TranscriptTraits model_;
};

}  // namespace

void collect_symbols(const DataConfig& data,
                     const TranscriptsConfig& config,
                     const std::string& path,
                     const std::string& field,
                     Symbols* symbols) {
  Rows rows(data, config, path, field, /*needs_text=*/true);
  for (TextTableRow row; rows.next(&row);)
    if (row.problem.empty()) symbols->collect(row.cells[kTextCell]);
}

Transcripts read_transcripts(const DataConfig& data,
                             const TranscriptsConfig& config,
                             const config::TranscriptTraits& model,
                             const std::string& path,
                             const std::string& field,
                             const Symbols& symbols,
                             bool needs_text) {
  Rows rows(data, config, path, field, needs_text);
  return Reader(data, config, model, symbols, needs_text, &rows).read();
}

std::unique_ptr<Dataset> make_transcript_dataset(Transcripts transcripts,
                                                 const config::TranscriptTraits& model,
                                                 int64_t max_symbols) {
  return std::make_unique<TranscriptDataset>(std::move(transcripts), model, max_symbols);
}

SampleSpec transcript_input(const config::TranscriptTraits& model) {
  return {DType::kF32, Shape{model.frames * model.features}};
}

SampleSpec transcript_target(int64_t max_symbols) { return {DType::kI32, Shape{2 + max_symbols}}; }

}  // namespace lockstep::data
