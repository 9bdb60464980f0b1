#pragma once
// JSON values: results for --json, reports and records of a run. Not for text of which the reader
// must bound what it holds: see runtime/checkpoint/safetensors_header.cc.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Text that is not JSON, or a value that is not of the kind asked for or lacks what was asked for.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JsonFormat {
  int indent = -1;               // spaces a level; below 0: everything on one line
  bool ascii = false;            // other characters as \uXXXX
  bool replace_invalid = false;  // bytes that are not UTF-8 become U+FFFD; else dump() throws
};

struct JsonMember;

// null, a boolean, a 64-bit integer with or without sign, a double, a string, an array, or an
// object that keeps its members in the order in which they came. Copies are deep. Members of
// objects are searched for one by one.
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
  // Arrays and objects deeper than this within each other are not parsed.
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
  Json(const void*) = delete;  // it would become a boolean
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

  // Throws JsonError, with the place in the text. Of two members with one name the last one counts.
  static Json parse(std::string_view text);

  // Throws JsonError on strings that are not UTF-8, unless they are to be mended.
  std::string dump(JsonFormat format = {}) const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_structured() const { return kind_ == Kind::kArray || kind_ == Kind::kObject; }

  // As bool, int, int64_t, uint64_t, double or std::string. A number is given as another kind of
  // number where that has its value, and rounded to a double. Throws JsonError on other values.
  template <typename T>
  T get() const;

  // Of an array or object, how many values it holds; else 0.
  size_t size() const { return held_ == nullptr ? 0 : values().size(); }
  bool empty() const { return size() == 0; }
  // The elements of an array, or the values of an object's members. Throws JsonError on others, but
  // null has none.
  const Json* begin() const;
  const Json* end() const { return begin() + size(); }
  // The names of an object's members. Throws JsonError on others.
  const std::vector<std::string>& names() const;

  // The member of that name; null where there is none, and of what is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throw JsonError on what is no object or array, and where nothing is there.
  const Json& at(std::string_view name) const;
  const Json& at(size_t index) const;
  const Json& operator[](std::string_view name) const { return at(name); }
  const Json& operator[](size_t index) const { return at(index); }
  // The member of that name; if there is none, or otherwise where it is absent.
  template <typename T>
  T value(std::string_view name, T otherwise) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->get<T>();
  }

  // The member of that name, added as null where there is none; a null becomes an object. Throws
  // JsonError on other values.
  Json& operator[](std::string_view name);
  // Adds to an array; a null becomes one. Throws JsonError on other values.
  void push_back(Json element);

  // Numbers are equal by value, whatever their kind; objects where the order is equal, too.
  friend bool operator==(const Json& a, const Json& b);
  friend std::ostream& operator<<(std::ostream& out, const Json& json);  // on one line

 private:
  struct Library;
  struct Held;  // what a string, array or object has

  Json(Kind kind, uint64_t bits);
  const std::vector<Json>& values() const;
  void hold(Kind kind);

  Kind kind_ = Kind::kNull;
  uint64_t bits_ = 0;  // of a boolean or number
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
