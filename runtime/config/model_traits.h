#pragma once
// What the rest of the program needs to know of a model. models/ says it of every config
// (traits_of); nobody else names a family.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// Of a sample: features (F) f32, tokens (T) i32, or pixels (H, W, C) u8.
enum class ModelInput { kFeatures, kTokens, kImages };

// What a model that takes tokens learns to say of them, and what its targets are.
enum class TextTask {
  kNextToken,       // (T) i32 the tokens that follow, -1: not counted
  kMaskedTokens,    // (T) i32 what the input hides, -1: not counted
  kSequenceClass,   // () i32 a class
  kSequenceValues,  // (O) f32 values
  kTokenClasses,    // (T) i32 a class of each token, -1: not counted
  kHiddenStates     // () i32 that nobody reads: such a model is not trained
};

struct DiffusionTraits {
  std::string fields = {};  // where schedule and the like stand below the model: "diffusion."
  DiffusionSchedule schedule = DiffusionSchedule::kLinear;
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  bool with_classes = true;     // it is told the class of an image
  bool without_classes = true;  // it learns images of no class, too: class number `outputs`
};

struct ModelTraits {
  std::string section = {};  // of the config, below model: "gpt"
  std::string file = {};     // the network's, if a file says what fields say of other models
  ModelInput input = ModelInput::kFeatures;
  // Says what the targets are: with softmax cross-entropy class labels (of tokens: the tokens that
  // follow), with the others values.
  Loss loss = Loss::kSoftmaxCrossEntropy;
  int64_t context = 0;  // tokens of a sample; 0 where the input is something else
  TextTask text_task = TextTask::kNextToken;  // of models that take tokens
  // Above 0: so many kinds of parts of a text are told apart. A sample is then (4, T) i32, the rows
  // of packed_tokens.h and the segments. And the field that says so.
  int64_t segments = 0;
  const char* segments_field = "segments";
  // Tokens that a model knows whose outputs are something else; 0: from the data, or the outputs.
  // And the field that says so.
  int64_t vocabulary = 0;
  const char* vocabulary_field = "vocabulary";
  // Classes, vocabulary or values to predict; 0: from the data. And the field that says so.
  int64_t outputs = 0;
  const char* outputs_field = "outputs";
  // The tensor (V, ...) whose rows are the vocabulary, for `generate`; null: it generates nothing.
  const char* vocabulary_tensor = nullptr;
  // Of models that take tokens: whether documents that share a sample do not see each other.
  bool tells_documents_apart = true;
  // It learns to take noise off images: targets are their class labels, but the loss compares
  // images. It predicts nothing of a sample; `lockstep sample` makes new ones with it.
  std::optional<DiffusionTraits> diffusion = std::nullopt;
  bool has_blocks = false;  // which execution.recompute can compute again

  // Beginnings of tensors' names that torchvision spells otherwise: ours and theirs. And a tensor
  // by which a checkpoint, which does not name its model, is known to be one of these.
  std::vector<std::pair<std::string, std::string>> torchvision_names = {};
  const char* known_by = nullptr;

  bool wants_images() const { return input == ModelInput::kImages; }
  // Whether the loss counts correct predictions: a regression has none.
  bool has_accuracy() const { return loss != Loss::kMeanSquaredError; }
  // The path of a field of the model, for messages: "model.gpt.context".
  std::string field(const std::string& name) const { return "model." + section + "." + name; }
  // How many there are by a field, and what says so: "model.mlp.outputs is 10", "'net.onnx' (model.onnx.file) has 10
  // outputs". `what`: one of them, "output".
  std::string told(const char* field_name, int64_t count, const char* what) const;
  std::string outputs_told() const { return told(outputs_field, outputs, "output"); }
  // Throws ConfigError: allowed is `allowed` or, for a field, what `open` says before it ("0, or ").
  [[noreturn]] void refuse(const char* field_name,
                           int64_t count,
                           const char* what,
                           const std::string& open,
                           const std::string& allowed) const;
};

}  // namespace lockstep
