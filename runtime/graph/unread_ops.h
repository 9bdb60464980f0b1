#pragma once
// Ops whose outputs nothing reads: a network of a file may have some.

namespace lockstep {

struct Graph;

// Takes them out, and those that they alone read from, of a forward pass without blocks. What keeps a
// state stays.
void drop_unread_ops(Graph& graph);

}  // namespace lockstep
