#pragma once
// The meanings of a file's inputs: which of them take tokens, masks and so on, and how long a
// sample is.

#include <optional>
#include <string>
#include <vector>

#include "models/onnx/bind/opened_file.h"
#include "runtime/config/model_traits.h"

namespace lockstep::onnx {

using Meaning = OnnxInput::Meaning;

class NetworkInputs {
 public:
  // The meaning of an input comes from the config, from the name that exporters give it or, for an
  // only input, from its type and axes. Throws ConfigError if a meaning is not known, if an input
  // has the wrong type or axes for its meaning, and if other fields of the config do not fit the
  // inputs. Borrows both.
  NetworkInputs(const OpenedFile& opened, const OnnxConfig& config);

  // In the order of File::inputs.
  const std::vector<Meaning>& meanings() const { return meanings_; }
  // The kind of input that a sample of the data must have.
  config::ModelInput kind() const;
  // Tokens of a sample; 0 if the network takes something else.
  int64_t context() const { return context_; }
  // The index of the input that takes images.
  size_t images_place() const;
  bool has(Meaning meaning) const;
  // Rows in the table of classes for "no class": 1 if training drops the classes of some samples,
  // otherwise 0.
  int64_t rows_for_none() const;

  // Binds the axes of inputs of tokens to `tokens` of each sample, those of images to `images` (C,
  // H, W). `stream`: samples are pieces of one stream of tokens, so that masks are 1 and positions
  // counted from 0: constants, as are the segments of models that predict the next token. Throws
  // ConfigError if the file fixes another number of tokens. `max_folded_bytes`: see BindOptions.
  Network bind(int64_t batch,
               int64_t tokens,
               const Extents& images,
               bool stream,
               int64_t max_folded_bytes = BindOptions().max_folded_bytes) const;
  // Why the network cannot be bound: see bind_problems() in network.h.
  std::vector<std::string> problems(int64_t batch,
                                    int64_t tokens,
                                    const Extents& images,
                                    bool stream) const;

 private:
  const FileValue& value(size_t index) const;
  std::optional<Meaning> meaning_of(size_t index) const;
  [[noreturn]] void refuse_unnamed(const std::vector<size_t>& indexes) const;
  void require_form(size_t index) const;
  void require_axes() const;
  void require_together() const;
  std::string words() const;  // of the meanings
  BindOptions options_for(int64_t batch, int64_t tokens, const Extents& images, bool stream) const;
  Array known(size_t index, int64_t batch, int64_t tokens) const;
  int64_t fixed_tokens() const;
  int64_t find_context() const;

  const OpenedFile& opened_;
  const OnnxConfig& config_;
  std::vector<Meaning> meanings_;
  int64_t context_ = 0;
};

// The number of samples with which a network is bound to find out what its masks of tokens hide
// (see nodes/lowering/token_mask.h): few, but enough to tell them apart.
inline constexpr int64_t kSamplesOfMasks = 3;

// Whether an input of this meaning has a number for each token, (N, T).
bool is_of_tokens(Meaning meaning);

}  // namespace lockstep::onnx
