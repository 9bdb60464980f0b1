#pragma once
// The attributes of an op: what it needs to know besides its tensors.

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace lockstep::graph {

// An immutable value of any type, shared by its copies: one struct of plain data per op, defined in
// the op's header. A backward op carries the attributes of its forward op, unless it defines its
// own.
class Attributes {
 public:
  Attributes() = default;  // none
  template <typename T>
  requires(!std::is_same_v<T, Attributes>)
      Attributes(T value)  // NOLINT: implicit, so that a struct can be passed as Attributes
      : value_(std::make_shared<const T>(std::move(value))), type_(&typeid(T)) {}

  // The value; asking for another type is a broken invariant.
  template <typename T>
  const T& as() const {
    return *static_cast<const T*>(get(typeid(T)));
  }

 private:
  const void* get(const std::type_info& type) const;

  std::shared_ptr<const void> value_;
  const std::type_info* type_ = nullptr;
};

}  // namespace lockstep::graph
