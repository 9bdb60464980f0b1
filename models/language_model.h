#pragma once
// Both ends of a language model: its tokens, and the output matrix with the loss.

#include <string>

#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep {

// (B, T) i32 each, or kNoTensor.
struct TokenInputs {
  TensorId tokens = kNoTensor;
  TensorId targets = kNoTensor;    // what follows each token, -1: not counted; none in inference
  TensorId documents = kNoTensor;  // of packed samples alone: see packed_tokens.h
  TensorId positions = kNoTensor;
  TensorId segments = kNoTensor;  // of samples of four rows alone
};

// Inputs and targets are what the loader fills, GraphOptions::sample_tokens tokens of a sample, of
// which a graph of fewer takes the first.

// Adds the targets of a graph of `tokens` tokens, one for each: (B, T) i32.
TensorId target_tokens(GraphBuilder& builder, int64_t lane_batch, int64_t tokens);

// Adds the inputs of a graph for samples of `tokens` tokens, packed as the options say.
TokenInputs token_inputs(GraphBuilder& builder, int64_t lane_batch, int64_t tokens);

// The same without targets for samples of four rows, whose positions are counted from
// `first_position` on.
TokenInputs text_inputs(GraphBuilder& builder,
                        int64_t lane_batch,
                        int64_t tokens,
                        int32_t first_position);

// Attention of a block: of qkv (B, T, P) as the options say, with a cache of its own where there is
// one.
TensorId text_attention(GraphBuilder& builder,
                        const std::string& name,
                        TensorId qkv,
                        const AttentionAttributes& attributes,
                        const TokenInputs& inputs);

// Ends the graph. x (B, T, C); head (V, C), the output matrix; bias (V) or kNoTensor. In inference
// the logits are kept, or x where the options leave out the head; else their loss, computed as many
// rows at a time as the options say, or all at once where the head has a LoRA.
void end_language_model(GraphBuilder& builder,
                        TensorId x,
                        TensorId head,
                        TensorId targets,
                        float label_smoothing,
                        TensorId bias = kNoTensor);

// Ends the graph of a network that says something of texts, outputs (B, O), or of each of their tokens,
// outputs (B, T, O). In inference they are kept; else their loss: of classes (softmax cross-entropy), or
// of values (mean squared error, of texts alone). Adds the targets.
void end_text_classifier(GraphBuilder& builder, TensorId outputs, Loss loss, float label_smoothing);

}  // namespace lockstep
