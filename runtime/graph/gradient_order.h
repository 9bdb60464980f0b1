#pragma once
// The order of a backward pass, as far as the exchange of gradients depends on it.

#include "runtime/graph/graph.h"

namespace lockstep::graph {

// The gradient of a table of embeddings is complete with the last ops of a backward pass, when
// nothing is left to compute under its exchange. If that table has a 16th of what is trained or
// more, the gradients of weights of the last four linear layers become ops of their own behind it.
// What is computed does not change.
void postpone_weight_gradients(Graph& graph);

}  // namespace lockstep::graph
