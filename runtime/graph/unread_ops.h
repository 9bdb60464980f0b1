#pragma once
// Removes ops whose outputs nothing reads; networks read from files may have some.

namespace lockstep::graph {

struct Graph;

// Removes such ops, and ops that only they read from, from a forward pass without blocks. Ops that
// update a state stay.
void drop_unread_ops(Graph& graph);

}  // namespace lockstep::graph
