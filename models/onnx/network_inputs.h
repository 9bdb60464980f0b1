#pragma once
// What the inputs of a file take: which of them are tokens, masks and so on, and how long a sample is.

#include <optional>
#include <string>
#include <vector>

#include "models/onnx/opened_file.h"
#include "runtime/config/model_traits.h"

namespace lockstep::onnx {

using Meaning = OnnxInput::Meaning;

class NetworkInputs {
 public:
  // By the config, by the names that exporters give them, and an input that is the only one by its type
  // and axes. Throws ConfigError where one is not known, or cannot be what it is said to be, and where
  // fields of the config ask for what the inputs do not have. Borrows both.
  NetworkInputs(const OpenedFile& opened, const OnnxConfig& config);

  // In the order of File::inputs.
  const std::vector<Meaning>& meanings() const { return meanings_; }
  // What a sample of the data has to be.
  ModelInput kind() const;
  // Of networks that take tokens, how many a sample has; else 0.
  int64_t context() const { return context_; }
  // Of networks that take images, the place of that input.
  size_t images_place() const;
  bool has(Meaning meaning) const;
  // Rows that a table of classes has for none of them: 1 where samples lose their class.
  int64_t rows_for_none() const;

  // Binds the axes of inputs of tokens to `tokens` of each sample, those of images to `images` (C, H, W).
  // `stream`: samples are pieces of one stream of tokens, so that masks are 1 and positions counted from
  // 0: constants, as are the segments of what predicts the next token. Throws ConfigError where the file
  // fixes another number of tokens. `most_folded_bytes`: see BindOptions.
  Network bind(int64_t batch,
               int64_t tokens,
               const Extents& images,
               bool stream,
               int64_t most_folded_bytes = BindOptions().most_folded_bytes) const;
  // Why it cannot be bound: see bind_problems() in network.h.
  std::vector<std::string> problems(int64_t batch,
                                    int64_t tokens,
                                    const Extents& images,
                                    bool stream) const;

 private:
  const FileValue& value(size_t place) const;
  std::optional<Meaning> meaning_of(size_t place) const;
  [[noreturn]] void refuse_unnamed(const std::vector<size_t>& places) const;
  void require_form(size_t place) const;
  void check_axes() const;
  void require_together() const;
  std::string words() const;  // of the meanings
  BindOptions options_for(int64_t batch, int64_t tokens, const Extents& images, bool stream) const;
  Array known(size_t place, int64_t batch, int64_t tokens) const;
  int64_t fixed_tokens() const;
  int64_t find_context() const;

  const OpenedFile& opened_;
  const OnnxConfig& config_;
  std::vector<Meaning> meanings_;
  int64_t context_ = 0;
};

// Whether it has a number for each token, (N, T).
bool is_of_tokens(Meaning meaning);

}  // namespace lockstep::onnx
