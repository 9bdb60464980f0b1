#pragma once
// JSON values: results for --json, reports and records of a run. Do not use it for text whose
// memory use must be bounded while it is parsed; see
// runtime/checkpoint/format/safetensors_header.cc.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The text is not JSON, a value has another type than the one asked for, or a member or element is
// absent.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JsonFormat {
  int indent = -1;               // spaces per level; below 0: everything on one line
  bool ascii = false;            // other characters are written as \uXXXX
  bool replace_invalid = false;  // bytes that are not UTF-8 become U+FFFD; otherwise dump() throws
};

struct JsonMember;

// null, a boolean, a signed or unsigned 64-bit integer, a double, a string, an array, or an object,
// which keeps its members in their original order. Copies are deep. Members of an object are
// searched linearly.
class Json {
 public:
  enum class Kind : uint8_t {
    kNull,
    kBoolean,
    kInteger,
    kUnsigned,
    kDouble,
    kString,
    kArray,
    kObject
  };
  // The max nesting depth of arrays and objects that parse() accepts.
  static constexpr int kMaxDepth = 1000;

  Json();  // null
  Json(bool value);
  Json(int value) : Json(static_cast<int64_t>(value)) {}
  Json(unsigned value) : Json(static_cast<uint64_t>(value)) {}
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);  // NaN and infinities are written as null
  Json(const char* text) : Json(std::string(text)) {}
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(std::string text);
  Json(const void*) = delete;  // a pointer would otherwise become a boolean
  template <typename T>
  Json(const std::vector<T>& elements) : Json(array()) {
    for (const T& element : elements) push_back(element);
  }
  static Json array(std::initializer_list<Json> elements = {});
  static Json object(std::initializer_list<JsonMember> members = {});

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  // Throws JsonError, with the position in the text, or with what the text is instead of JSON. If
  // two members have the same name, the last one counts.
  static Json parse(std::string_view text);

  // Throws JsonError if a string is not UTF-8, unless the format replaces invalid bytes.
  std::string dump(JsonFormat format = {}) const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_structured() const { return kind_ == Kind::kArray || kind_ == Kind::kObject; }

  // The value as bool, int, int64_t, uint64_t, double or std::string. A number is converted to
  // another numeric type if that can represent it exactly; conversion to double rounds. Throws
  // JsonError for other values.
  template <typename T>
  T get() const;

  // The number of elements of an array or members of an object; 0 for other values.
  size_t size() const { return held_ == nullptr ? 0 : values().size(); }
  bool empty() const { return size() == 0; }
  // The elements of an array, or the values of an object's members; null has none. Throws JsonError
  // for other values.
  const Json* begin() const;
  const Json* end() const { return begin() + size(); }
  // The names of an object's members. Throws JsonError for other values.
  const std::vector<std::string>& names() const;

  // The member of that name. Returns null if there is none or if this is not an object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throw JsonError if this is not an object (or array), or if it has no such member (or element).
  const Json& at(std::string_view name) const;
  const Json& at(size_t index) const;
  const Json& operator[](std::string_view name) const { return at(name); }
  const Json& operator[](size_t index) const { return at(index); }
  // The member of that name, or `otherwise` if there is none.
  template <typename T>
  T value(std::string_view name, T otherwise) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->get<T>();
  }

  // The member of that name, which is added as null if there is none. A null becomes an object.
  // Throws JsonError for other values.
  Json& operator[](std::string_view name);
  // Appends to an array. A null becomes an array. Throws JsonError for other values.
  void push_back(Json element);

  // Numbers are equal if their values are, whatever their kind. Objects are equal only if their
  // members come in the same order.
  friend bool operator==(const Json& a, const Json& b);

 private:
  struct Library;
  struct Held;  // the contents of a string, array or object

  Json(Kind kind, uint64_t bits);
  const std::vector<Json>& values() const;
  void hold(Kind kind);

  Kind kind_ = Kind::kNull;
  uint64_t bits_ = 0;  // the value of a boolean or number
  std::unique_ptr<Held> held_;
};

struct JsonMember {
  std::string_view name;
  Json value;
};

template <>
bool Json::get() const;
template <>
int Json::get() const;
template <>
int64_t Json::get() const;
template <>
uint64_t Json::get() const;
template <>
double Json::get() const;
template <>
std::string Json::get() const;

}  // namespace lockstep
