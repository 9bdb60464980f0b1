#pragma once
// Properties of a model that the rest of the program needs. models/ computes them for every config
// (OpenedModel::traits); only models/ names families.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// The input of a sample: features (F) f32, tokens (T) i32, or pixels (H, W, C) u8.
enum class ModelInput { kFeatures, kTokens, kImages };

// What a model of tokens predicts, and the targets that it is trained on. Other code asks
// ModelTraits::target_kind().
enum class TextTask {
  kNextToken,       // (T) i32 the next tokens; -1: not counted
  kMaskedTokens,    // (T) i32 the tokens hidden in the input; -1: not counted
  kSequenceClass,   // () i32 a class
  kSequenceValues,  // (O) f32 values
  kTokenClasses,    // (T) i32 a class for each token; -1: not counted
  kEmbeddings,      // () f32 the similarity of a sample's texts; NaN: not given
  kAnswers,         // (2, T) i32 the next tokens of a better and a worse answer; -1: not counted
  kRewards,         // () i32, unused: a sample is a better and a worse answer
  kHiddenStates     // () i32, unused: such a model is not trained
};

// What the target of a sample is. O: ModelTraits::outputs, T: tokens of a sample.
enum class TargetKind {
  kNone,          // () i32, unused
  kClass,         // () i32 a class; with diffusion, the class of the image
  kYesNo,         // (O) f32 in [0, 1], the probability of each yes
  kValues,        // (O) f32
  kDistribution,  // (O) f32 a probability for each class, with sum 1
  kPixelClasses,  // (H, W) i32 a class for each pixel; -1: not counted
  kTokens,        // (T) i32 tokens; -1: not counted
  kTokenClasses,  // (T) i32 a class for each token; -1: not counted
  kTranscript,    // symbols, fewer than the outputs
  kSimilarity,    // how similar the two texts of a sample are
  kPreference,    // the first of a sample's two texts is better
  kNamed          // several, or inputs of the network: ModelTraits::targets
};

// For messages: "class labels", "values".
const char* description_of(TargetKind kind);

struct DiffusionTraits {
  std::string fields = {};  // prefix of schedule and target below the model: "diffusion."
  DiffusionSchedule schedule = DiffusionSchedule::kLinear;
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  bool with_classes = true;     // its input includes the class of an image
  bool without_classes = true;  // it also learns images without a class: class number `outputs`
};

// One of the named targets of a sample. A sample's target is then a record: the elements of all
// parts, four bytes each, in order.
struct TargetPart {
  enum class Type {
    kLabels,  // i32: class numbers
    kValues,  // f32
    kShares   // f32 from 0 to 1
  };
  // In the data. A model may leave it open ("") for one part: the data's only target, or the only
  // one that no other part names.
  std::string name = {};
  Type type = Type::kLabels;
  std::vector<int64_t> extents = {};              // of a sample; extents of 1 may be left out
  bool any_extents = false;                       // what a model asks for may have any extents
  int64_t classes = 0;                            // labels are below it; 0: not known
  std::optional<int64_t> ignored = std::nullopt;  // a label that is allowed besides classes

  int64_t elements() const;
  bool operator==(const TargetPart&) const = default;
};

// Elements of a sample's record before part `index`.
int64_t first_element(const std::vector<TargetPart>& parts, size_t index);

// A network that predicts fewer symbols than it sees frames (loss CTC). Frames behind those of a
// sample are zeros.
struct TranscriptTraits {
  int64_t frames = 0;         // T of the input, the most that a sample may have
  int64_t features = 0;       // F of a frame
  int64_t output_frames = 0;  // T' of the output, at most T
  int64_t blank = 0;          // the class that stands for no symbol

  // Frames of the output that count for a sample of so many frames: its share of them, rounded up.
  int64_t output_frames_of(int64_t sample_frames) const {
    return (sample_frames * output_frames + frames - 1) / frames;
  }
};

struct ModelTraits {
  std::string section = {};  // of the config, below model: "gpt"
  std::string file = {};     // the network's file, if the model is a file
  ModelInput input = ModelInput::kFeatures;
  // The network computes its loss itself (loss OUTPUT). `loss` is then the kind of its prediction,
  // or Loss::kOutput if it has none.
  bool computes_loss = false;
  Loss loss = Loss::kSoftmaxCrossEntropy;
  float huber_delta = 1;                      // of Loss::kHuber
  int64_t context = 0;                        // tokens of a sample; 0 if the input is not tokens
  TextTask text_task = TextTask::kNextToken;  // of models whose input is tokens
  // Above 0: the number of kinds of segments in a text. A sample is then (4, T) i32: the rows of
  // packed_tokens.h and the segments.
  int64_t segments = 0;
  // The field that sets `segments`.
  const char* segments_field = "segments";
  // The size of the vocabulary, for models whose outputs are something else. 0: from the data, or
  // equal to the outputs.
  int64_t vocabulary = 0;
  // The field that sets `vocabulary`.
  const char* vocabulary_field = "vocabulary";
  // The number of classes, tokens of the vocabulary or values to predict. 0: from the data.
  int64_t outputs = 0;
  // The field that sets `outputs`.
  const char* outputs_field = "outputs";
  // The tensor (V, ...) whose rows are the vocabulary, for `generate`. Null: the model cannot
  // generate.
  const char* vocabulary_tensor = nullptr;
  // For models of tokens: whether documents that share a sample cannot attend to each other.
  bool tells_documents_apart = true;
  // The model learns to denoise images. Its targets are class labels, but its loss compares images.
  // It predicts nothing for a sample; `lockstep sample` generates images with it.
  std::optional<DiffusionTraits> diffusion = std::nullopt;
  bool has_blocks = false;  // execution.recompute can recompute them
  // In training, batch norms use the statistics of a lane's samples, so that few are noisy.
  bool normalises_lanes = false;

  // Prefixes of tensor names that differ in torchvision: ours and theirs. `known_by` is a tensor
  // whose presence identifies a checkpoint, which does not name its model, as one of this family.
  std::vector<std::pair<std::string, std::string>> torchvision_names = {};
  const char* known_by = nullptr;

  // With softmax cross-entropy: each pixel has a class.
  bool pixel_classes = false;
  // The targets that the model names or combines; empty: one target, by `loss`. If not empty, the
  // first is the one that the metrics of `loss` and `outputs` are about.
  std::vector<TargetPart> targets = {};

  // With loss CTC, and only then.
  std::optional<TranscriptTraits> transcript = std::nullopt;

  // What the targets are, which only this function derives from the loss.
  TargetKind target_kind() const;
  // What the target of the metrics is: the first of several. kNamed: there are no metrics.
  TargetKind scored_kind() const;
  bool wants_images() const { return input == ModelInput::kImages; }
  // Whether the loss has an accuracy: a regression has none.
  bool has_accuracy() const;
  // The path of a field of the model, for messages: "model.gpt.context".
  std::string field(const std::string& name) const { return "model." + section + "." + name; }
  // A count and the field or file that determines it, for messages: "model.mlp.outputs is 10",
  // "'net.onnx' (model.onnx.file) has 10 outputs". `what` is the singular: "output".
  std::string describe_count(const char* field_name, int64_t count, const char* what) const;
  std::string describe_outputs() const { return describe_count(outputs_field, outputs, "output"); }
  // Throws ConfigError for a count that is not allowed. The message lists `allowed`; if the model
  // has fields, `open` precedes it ("0, or ").
  [[noreturn]] void refuse(const char* field_name,
                           int64_t count,
                           const char* what,
                           const std::string& open,
                           const std::string& allowed) const;
};

}  // namespace lockstep::config
