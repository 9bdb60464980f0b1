#include "runtime/graph/attributes.h"

#include "runtime/base/error.h"

namespace lockstep::graph {

const void* Attributes::get(const std::type_info& type) const {
  LOCKSTEP_CHECK(type_ != nullptr && *type_ == type,
                 "the attributes are {} and not {} ",
                 type_ == nullptr ? "none" : type_->name(),
                 type.name());
  return value_.get();
}

}  // namespace lockstep::graph
