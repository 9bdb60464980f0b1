#pragma once
// The offset of each parameter in the flat buffers, and how the buffers are cut into buckets.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/graph/graph.h"

namespace lockstep::plan {

// A parameter's offset in the flat buffers, in elements, and its attributes.
struct ParameterSlot : graph::ParameterAttributes {
  std::string name;
  Shape shape;
  int64_t offset = 0;
  int64_t elements = 0;
  int64_t gradient_offset = 0;  // of one lane's gradient in a gradient buffer
  int64_t padding = 0;          // elements in rows of zeros after it, which ops read and write

  // Whether it is a matrix that a step updates, with the first extent as the rows.
  bool is_trained_matrix() const { return shape.rank() >= 2 && running_momentum == 0 && !frozen; }
};

// Slots are indexed by parameter number (order of creation in the graph). Offsets follow the order
// in which the backward pass finishes the gradients, so that a bucket is complete as early as
// possible. Running statistics come next, in buckets of their own, and frozen parameters last:
// there are no gradients, moments or master weights at their offsets. No parameter crosses the
// boundary of a block, which is one bucket or, for a parameter larger than a bucket, several.
struct ParameterLayout {
  std::vector<ParameterSlot> slots;
  DType compute = DType::kF32;  // of the parameters as the ops read them
  std::vector<collectives::Range> blocks;
  std::vector<collectives::Range> buckets;  // of everything that a step updates
  std::vector<collectives::Range>
      frozen_buckets;      // numbered after `buckets`: those of frozen parameters
  int64_t parameters = 0;  // elements in use
  int64_t elements = 0;    // including padding
  // Offset of the running statistics; trained() if there are none.
  int64_t statistics_begin = 0;
  int64_t frozen_elements = 0;    // at the end, including padding
  int64_t frozen_parameters = 0;  // of `parameters`
  int lanes = 1;
  bool by_parts = false;          // parameters are updated by row_parts: see begins()
  int64_t gradient_elements = 0;  // of a gradient buffer
  // If buckets share the memory of a gradient buffer: each bucket's offset in it, and the ranges of
  // the bucket that hold no gradient. Empty if buckets lie as in the flat buffer.
  std::vector<int64_t> bucket_offsets;
  std::vector<std::vector<collectives::Range>> bucket_gaps;

  // Offset of the frozen parameters: the elements that a step updates, including padding.
  int64_t trained() const { return elements - frozen_elements; }

  // The slots' offsets in increasing order.
  std::vector<int64_t> slot_begins() const;
  // Where pieces that are updated differently begin, in increasing order: the slots and, if they
  // are updated by parts, the parts of those that are not frozen.
  std::vector<int64_t> begins() const;
  // The slot that holds an element. For padding, the slot before it.
  size_t slot_at(int64_t flat) const;
  size_t gradient_buckets() const;                      // without the buckets of running statistics
  std::vector<collectives::Range> all_buckets() const;  // with the buckets of frozen parameters
  // "layers.3.norm.weight to layers.3.mlp.up.weight" for each of them.
  std::vector<std::string> bucket_names() const;
};

inline bool overlap(const ParameterSlot& slot, const collectives::Range& range) {
  return slot.offset < range.end && slot.offset + slot.elements + slot.padding > range.begin;
}

// `bucket_elements`: max total number of elements of a block's parameters, and about those of a
// bucket. A larger parameter gets a block of its own, of several buckets. `short_end`: the last
// buckets of trained parameters become shorter, down to an eighth. `alignment`: parameters, and the
// parts of buckets, begin at multiples of it, which is one of kSliceAlignment.
ParameterLayout make_layout(const graph::Graph& training,
                            int lanes,
                            int64_t bucket_elements = int64_t{1} << 62,
                            int ranks = 1,
                            bool short_end = false,
                            int64_t alignment = collectives::kSliceAlignment);

// For each op, the buckets whose gradients are complete after it. Buckets appear in increasing
// order.
std::vector<std::vector<int>> bucket_schedule(const graph::Graph& training,
                                              const ParameterLayout& layout);

// The bucket size, in MiB of floats, that exposes the least of an exchange. If G bytes are sent in
// buckets of b bytes, two times are exposed: that of the last bucket, b / bandwidth, and G / b
// times the fixed cost of one bucket. Their sum is least at b = sqrt(G * cost * bandwidth). On
// networks and in shared memory alike, cost * bandwidth is about 128 KiB, because a faster link
// also has a lower latency. Rounded to a tenth.
double usual_bucket_mib(const graph::Graph& training, DType wire);

}  // namespace lockstep::plan
