#pragma once
// The layout of text samples.
//   input   (T) i32 tokens of one sequence, without boundaries of documents
//           (3, T) i32 tokens, documents, positions: packed documents (graph/ops/packed_tokens.h)
//           (4, T) i32 the same and segments: for all models but causal language models
//           (4 P, T) i32 the rows of each of P texts: pairs and triplets, for embeddings
//   target  depends on TextTask
// documents: the index of the token's document within the sample; -1: padding. positions: the
// token's position in its document, from 0. segments: which text of a pair it belongs to, 0 or 1.
// Padding has token, position and segment 0 and target -1.

#include "runtime/data/dataset.h"

namespace lockstep::data {

// The rows of a sample.
enum TextRow { kTokenRow, kDocumentRow, kPositionRow, kSegmentRow, kTextRows };

// Whether the model takes samples (4, T).
inline bool takes_segments(const config::ModelTraits& model) {
  return model.segments > 0 || model.text_task != config::TextTask::kNextToken;
}

// The input of samples of model.context tokens. `packed` matters only for causal language models.
// A sample of several `texts` has the rows of each, one text after the other.
SampleSpec text_input(const config::ModelTraits& model, bool packed, int64_t texts = 1);
// The target of a sample. `outputs`: number of values, for TextTask::kSequenceValues.
SampleSpec text_target(const config::ModelTraits& model, int64_t outputs);

}  // namespace lockstep::data
