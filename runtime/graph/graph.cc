#include "runtime/graph/graph.h"

namespace lockstep {

int64_t Graph::parameter_count() const {
  int64_t count = 0;
  for (TensorId id : parameters) count += (*this)[id].shape.elements();
  return count;
}

}  // namespace lockstep
