#pragma once
// What a sample of text looks like.
//   input   (T) i32 tokens, where each is a piece of one stream of tokens
//           (3, T) i32 tokens, documents, positions: of packed documents (graph/ops/packed_tokens.h)
//           (4, T) i32 the same and segments: for every model but causal language models
//   target  as TextTask says
// documents: of each token the number of its document within the sample, -1: padding. positions: of
// each token its place in the document, from 0. segments: which part of a text it belongs to, the
// first or the second of a pair. Padding has token, position and segment 0 and target -1.

#include "runtime/data/dataset.h"

namespace lockstep {

// Rows of a sample that has more than tokens.
enum TextRow { kTokenRow, kDocumentRow, kPositionRow, kSegmentRow, kTextRows };

// Whether the model takes samples (4, T).
inline bool takes_segments(const ModelTraits& model) {
  return model.segments > 0 || model.text_task != TextTask::kNextToken;
}

// Of samples of model.context tokens; `packed` counts for causal language models alone.
SampleSpec text_input(const ModelTraits& model, bool packed);
// `outputs`: values of a target, where targets are such.
SampleSpec text_target(const ModelTraits& model, int64_t outputs);

}  // namespace lockstep
