#pragma once
// What the tests of texts share: a small WordPiece tokenizer, and traits of encoders.

#include <string>

#include "files.h"

namespace lockstep::test {

// Ids are the numbers of the lines: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then a 5 to h 12,
// ##x 13, ##y 14.
inline const std::string kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n##x\n##y\n";

inline config::ModelTraits encoder(config::TextTask task, int64_t context, int64_t outputs = 0) {
  config::ModelTraits traits;
  traits.section = "bert";
  traits.input = config::ModelInput::kTokens;
  traits.context = context;
  traits.text_task = task;
  traits.segments = 2;
  traits.outputs = outputs;
  traits.outputs_field = task == config::TextTask::kMaskedTokens ? "vocabulary" : "classes";
  if (task == config::TextTask::kSequenceValues) traits.loss = Loss::kMeanSquaredError;
  return traits;
}

}  // namespace lockstep::test
