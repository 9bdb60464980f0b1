#pragma once
// What an op is told beside its tensors.

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace lockstep {

// A value of any type that never changes, shared by its copies: one struct of plain data an op,
// which stands in the op's header. Each backward op carries the attributes of its forward op,
// unless it has its own.
class Attributes {
 public:
  Attributes() = default;  // none
  template <typename T>
  requires(!std::is_same_v<T, Attributes>)
      Attributes(T value)  // NOLINT: a value of attributes is meant wherever Attributes are
      : value_(std::make_shared<const T>(std::move(value))), type_(&typeid(T)) {}

  // The value; that it is of another type is a broken invariant.
  template <typename T>
  const T& as() const {
    return *static_cast<const T*>(get(typeid(T)));
  }

 private:
  const void* get(const std::type_info& type) const;

  std::shared_ptr<const void> value_;
  const std::type_info* type_ = nullptr;
};

}  // namespace lockstep
