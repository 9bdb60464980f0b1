#pragma once
// Removes ops whose outputs nothing reads.

#include <cstddef>
#include <functional>

namespace lockstep::graph {

struct Graph;
struct Op;

// Removes the ops from number `first` on that neither count as results nor write a tensor that a
// later op, which stays, reads.
void drop_unread_ops(Graph& graph, size_t first, const std::function<bool(const Op&)>& is_result);

// Removes such ops from a forward pass without blocks; networks read from files may have some. Ops
// that update a state stay.
void drop_unread_ops(Graph& graph);

}  // namespace lockstep::graph
