#pragma once
// Structs of facts as JSON and back. A struct lists its fields once:
//
//   template <typename Self, typename Visit>
//   static void for_fields(Self& self, Visit visit) { visit("cpus", self.cpus); ... }

#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::doctor {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
concept HasFields = requires(T& value) {
  T::for_fields(value, [](const char*, auto&) {});
};

template <typename T>
Json json_of(const T& value) {
  if constexpr (HasFields<T>) {
    Json json = Json::object();
    T::for_fields(value, [&](const char* name, const auto& field) { json[name] = json_of(field); });
    return json;
  } else if constexpr (IsVector<T>::value) {
    Json json = Json::array();
    for (const auto& element : value) json.push_back(json_of(element));
    return json;
  } else {
    return Json(value);
  }
}

// Throws JsonError.
template <typename T>
T from_json(const Json& json) {
  if constexpr (HasFields<T>) {
    T value;
    T::for_fields(value, [&](const char* name, auto& field) {
      field = from_json<std::remove_cvref_t<decltype(field)>>(json.at(name));
    });
    return value;
  } else if constexpr (IsVector<T>::value) {
    T value;
    for (const Json& element : json) value.push_back(from_json<typename T::value_type>(element));
    return value;
  } else {
    return json.get<T>();
  }
}

}  // namespace lockstep::doctor
