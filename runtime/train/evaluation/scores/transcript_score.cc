// Word and character error rates of transcripts.
#include <cstring>
#include <string>
#include <vector>

#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/metrics/transcript_errors.h"
#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

// What ranks exchange about a sample.
struct TranscriptRecord {
  int32_t counts, word_edits, words, character_edits, characters;
};

class TranscriptScore final : public TaskScore {
 public:
  explicit TranscriptScore(const ScoreInput& input)
      : names_(input.class_names.begin(), input.class_names.end()),
        blank_(static_cast<int32_t>(input.model.transcript->blank)),
        frames_(input.model.transcript->output_frames),
        classes_(input.columns),
        samples_(input.lane_samples) {}

  size_t record_bytes() const override { return sizeof(TranscriptRecord); }
  int64_t lane_records() const override { return samples_; }
  bool needs_samples(EvalConfig::Metric /*metric*/) const override { return false; }

  void write(const ScoredLane& lane, std::byte* records) const override {
    const auto* const targets = reinterpret_cast<const int32_t*>(lane.targets);
    auto* const to = reinterpret_cast<TranscriptRecord*>(records);
    with_numbers(lane.predictions, lane.dtype, [&](const auto* numbers) {
      for (int64_t i = 0; i < lane.samples; ++i) {
        const graph::CtcTarget target{targets + i * lane.target_elements, blank_};
        if (!target.counts()) continue;
        const auto* const outputs = numbers + i * frames_ * lane.stride;
        const auto score = [&](int64_t at) {
          return to_float(outputs[at / classes_ * lane.stride + at % classes_]);
        };
        const metrics::TranscriptErrors errors = metrics::transcript_errors(
            metrics::text_of(target.all_symbols(), names_),
            metrics::text_of(metrics::best_path(target.frames(), classes_, blank_, score), names_));
        to[i] = {.counts = 1,
                 .word_edits = static_cast<int32_t>(errors.words.edits),
                 .words = static_cast<int32_t>(errors.words.wanted),
                 .character_edits = static_cast<int32_t>(errors.characters.edits),
                 .characters = static_cast<int32_t>(errors.characters.wanted)};
      }
    });
  }

  void begin(std::byte* /*counts*/,
             std::byte* /*samples*/,
             metrics::TaskReport* /*report*/) override {
    errors_ = {};
    counted_ = 0;
  }
  void add(const std::byte* record) override {
    TranscriptRecord found;
    std::memcpy(&found, record, sizeof(found));
    counted_ += found.counts;
    errors_.add({.words = {found.word_edits, found.words},
                 .characters = {found.character_edits, found.characters}});
  }
  metrics::TaskMetrics finish() override {
    metrics::TaskMetrics metrics;
    metrics[metrics::kWordErrorRate] = errors_.words.rate();
    metrics[metrics::kCharacterErrorRate] = errors_.characters.rate();
    return metrics;
  }
  int64_t counted() const override { return counted_; }

 private:
  const std::vector<std::string> names_;  // of the classes
  const int32_t blank_;
  const int64_t frames_, classes_, samples_;
  metrics::TranscriptErrors errors_;
  int64_t counted_ = 0;
};

}  // namespace

std::unique_ptr<TaskScore> transcript_score(const ScoreInput& input) {
  return std::make_unique<TranscriptScore>(input);
}

}  // namespace lockstep::train
