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

// What a model of tokens predicts, and the targets that it is trained on.
enum class TextTask {
  kNextToken,       // (T) i32 the next tokens; -1: not counted
  kMaskedTokens,    // (T) i32 the tokens hidden in the input; -1: not counted
  kSequenceClass,   // () i32 a class
  kSequenceValues,  // (O) f32 values
  kTokenClasses,    // (T) i32 a class for each token; -1: not counted
  kHiddenStates     // () i32, unused: such a model is not trained
};

struct DiffusionTraits {
  std::string fields = {};  // prefix of schedule and target below the model: "diffusion."
  DiffusionSchedule schedule = DiffusionSchedule::kLinear;
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  bool with_classes = true;     // its input includes the class of an image
  bool without_classes = true;  // it also learns images without a class: class number `outputs`
};

struct ModelTraits {
  std::string section = {};  // of the config, below model: "gpt"
  std::string file = {};     // the network's file, if the model is a file
  ModelInput input = ModelInput::kFeatures;
  // Determines the targets. Softmax cross-entropy: class labels, or for tokens the next tokens.
  // Other losses: values.
  Loss loss = Loss::kSoftmaxCrossEntropy;
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

  bool wants_images() const { return input == ModelInput::kImages; }
  // Whether the loss has an accuracy: a regression has none.
  bool has_accuracy() const { return loss != Loss::kMeanSquaredError; }
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
