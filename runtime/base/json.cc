#include "runtime/base/json.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "runtime/base/file_kind.h"

namespace lockstep {
namespace {

const char* name_of(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kBoolean: return "boolean";
    case Json::Kind::kString: return "string";
    case Json::Kind::kArray: return "array";
    case Json::Kind::kObject: return "object";
    default: return "number";
  }
}

// The message of an error of nlohmann's library, without its number in brackets.
std::string words_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

[[noreturn]] void fail(const std::string& what) { throw JsonError(what); }

[[noreturn]] void fail_type(const char* wanted, Json::Kind found) {
  fail(std::string("type must be ") + wanted + ", but is " + name_of(found));
}

[[noreturn]] void fail_use(const char* of, Json::Kind found) {
  fail(std::string("cannot use ") + of + " with " + name_of(found));
}

}  // namespace

struct Json::Held {
  std::string text;
  std::vector<std::string> names;  // of an object; as many as values
  std::vector<Json> values;
};

Json::Json() = default;
Json::Json(Kind kind, uint64_t bits) : kind_(kind), bits_(bits) {}
Json::Json(bool value) : Json(Kind::kBoolean, value ? 1 : 0) {}
Json::Json(int64_t value) : Json(Kind::kInteger, static_cast<uint64_t>(value)) {}
Json::Json(uint64_t value) : Json(Kind::kUnsigned, value) {}
Json::Json(double value) : Json(Kind::kDouble, std::bit_cast<uint64_t>(value)) {}
Json::Json(std::string text) {
  hold(Kind::kString);
  held_->text = std::move(text);
}

Json Json::array(std::initializer_list<Json> elements) {
  Json json;
  json.hold(Kind::kArray);
  json.held_->values = elements;
  return json;
}

Json Json::object(std::initializer_list<JsonMember> members) {
  Json json;
  json.hold(Kind::kObject);
  for (const JsonMember& member : members) json[member.name] = member.value;
  return json;
}

Json::Json(const Json& other)
    : kind_(other.kind_),
      bits_(other.bits_),
      held_(other.held_ == nullptr ? nullptr : std::make_unique<Held>(*other.held_)) {}

Json::Json(Json&& other) noexcept
    : kind_(std::exchange(other.kind_, Kind::kNull)),
      bits_(other.bits_),
      held_(std::move(other.held_)) {}

Json& Json::operator=(Json other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(bits_, other.bits_);
  std::swap(held_, other.held_);
  return *this;
}

Json::~Json() = default;

void Json::hold(Kind kind) {
  kind_ = kind;
  held_ = std::make_unique<Held>();
}

const std::vector<Json>& Json::values() const { return held_->values; }

const Json* Json::begin() const {
  if (is_null()) return nullptr;
  if (!is_structured()) fail_use("begin()", kind_);
  return held_->values.data();
}

const std::vector<std::string>& Json::names() const {
  if (kind_ != Kind::kObject) fail_type("object", kind_);
  return held_->names;
}

const Json* Json::find(std::string_view name) const {
  if (kind_ != Kind::kObject) return nullptr;
  const auto found = std::find(held_->names.begin(), held_->names.end(), name);
  if (found == held_->names.end()) return nullptr;
  return &held_->values[static_cast<size_t>(found - held_->names.begin())];
}

const Json& Json::at(std::string_view name) const {
  if (kind_ != Kind::kObject) fail_use("at()", kind_);
  const Json* found = find(name);
  if (found == nullptr) fail("key '" + std::string(name) + "' not found");
  return *found;
}

const Json& Json::at(size_t index) const {
  if (kind_ != Kind::kArray) fail_use("at()", kind_);
  if (index >= held_->values.size())
    fail("array index " + std::to_string(index) + " is out of range");
  return held_->values[index];
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) hold(Kind::kObject);
  if (kind_ != Kind::kObject) fail_use("operator[] with a string argument", kind_);
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  held_->names.emplace_back(name);
  return held_->values.emplace_back();
}

void Json::push_back(Json element) {
  if (is_null()) hold(Kind::kArray);
  if (kind_ != Kind::kArray) fail_use("push_back()", kind_);
  held_->values.push_back(std::move(element));
}

template <>
bool Json::get() const {
  if (kind_ != Kind::kBoolean) fail_type("boolean", kind_);
  return bits_ != 0;
}

template <>
double Json::get() const {
  switch (kind_) {
    case Kind::kInteger: return static_cast<double>(static_cast<int64_t>(bits_));
    case Kind::kUnsigned: return static_cast<double>(bits_);
    case Kind::kDouble: return std::bit_cast<double>(bits_);
    default: fail_type("number", kind_);
  }
}

template <>
int64_t Json::get() const {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  const double value = get<double>();
  if (kind_ == Kind::kInteger) return static_cast<int64_t>(bits_);
  if (kind_ == Kind::kUnsigned && bits_ <= static_cast<uint64_t>(INT64_MAX))
    return static_cast<int64_t>(bits_);
  if (kind_ == Kind::kDouble && value >= -kLimit && value < kLimit) {
    const auto integer = static_cast<int64_t>(value);
    if (static_cast<double>(integer) == value) return integer;
  }
  fail("" + dump() + " is not a 64-bit integer");
}

template <>
uint64_t Json::get() const {
  if (kind_ == Kind::kUnsigned) return bits_;
  const auto value = get<int64_t>();
  if (value < 0) fail("" + dump() + " is negative");
  return static_cast<uint64_t>(value);
}

template <>
int Json::get() const {
  const auto value = get<int64_t>();
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    fail("" + dump() + " is not a 32-bit integer");
  return static_cast<int>(value);
}

template <>
std::string Json::get() const {
  if (kind_ != Kind::kString) fail_type("string", kind_);
  return held_->text;
}

bool operator==(const Json& a, const Json& b) {
  using Kind = Json::Kind;
  const auto is_number = [](Kind kind) {
    return kind == Kind::kInteger || kind == Kind::kUnsigned || kind == Kind::kDouble;
  };
  if (is_number(a.kind_) && is_number(b.kind_)) {
    if (a.kind_ == Kind::kDouble || b.kind_ == Kind::kDouble)
      return a.get<double>() == b.get<double>();
    const auto negative = [](const Json& json) {
      return json.kind_ == Kind::kInteger && static_cast<int64_t>(json.bits_) < 0;
    };
    return a.bits_ == b.bits_ && negative(a) == negative(b);
  }
  if (a.kind_ != b.kind_ || a.bits_ != b.bits_) return false;
  if (a.held_ == nullptr) return true;
  return a.held_->text == b.held_->text && a.held_->names == b.held_->names &&
         a.held_->values == b.held_->values;
}

// Converts from and to the library's values, which implement the syntax of numbers and strings.
struct Json::Library {
  using Value = nlohmann::ordered_json;

  static Value to(const Json& json) {
    switch (json.kind_) {
      case Kind::kNull: return nullptr;
      case Kind::kBoolean: return json.bits_ != 0;
      case Kind::kInteger: return static_cast<int64_t>(json.bits_);
      case Kind::kUnsigned: return json.bits_;
      case Kind::kDouble: return std::bit_cast<double>(json.bits_);
      case Kind::kString: return json.held_->text;
      case Kind::kArray: {
        Value array = Value::array();
        for (const Json& element : json) array.push_back(to(element));
        return array;
      }
      case Kind::kObject: {
        // The names are distinct, so the members can be appended without a search.
        Value::object_t object;
        for (size_t i = 0; i < json.size(); ++i)
          object.emplace_back(json.names()[i], to(json.held_->values[i]));
        return object;
      }
    }
    return nullptr;
  }

  // Builds a Json from the library's parser events, so that memory never holds a second copy.
  class Builder;
};

class Json::Library::Builder {
 public:
  using number_integer_t = Value::number_integer_t;
  using number_unsigned_t = Value::number_unsigned_t;
  using number_float_t = Value::number_float_t;
  using string_t = Value::string_t;
  using binary_t = Value::binary_t;

  bool null() { return add({}); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) { return add(uint64_t{value}); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& text) { return add(std::move(text)); }
  bool binary(binary_t&) { return false; }  // does not occur in text
  bool start_object(size_t) { return start(Kind::kObject); }
  bool start_array(size_t) { return start(Kind::kArray); }
  bool end_object() { return finish(); }
  bool end_array() { return finish(); }

  bool key(string_t& name) {
    Open& open = open_.back();
    open.index = open.find(name);
    if (open.index == open.value.size()) {
      if (open.index >= kLinearNames) open.indices.emplace(name, open.index);
      open.value.held_->names.push_back(std::move(name));
      open.value.held_->values.emplace_back();
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    throw JsonError(words_of(error));
  }

  Json take() { return std::move(whole_); }

 private:
  // The first names of an object are searched linearly, the others through a map.
  static constexpr size_t kLinearNames = 16;

  // An array or object that has not ended.
  struct Open {
    Json value;
    size_t index = 0;                                 // of the member whose value comes next
    std::unordered_map<std::string, size_t> indices;  // of the members after the first kLinearNames

    size_t find(const std::string& name) const {
      const auto& names = value.held_->names;
      const auto end = names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kLinearNames));
      const auto found = std::find(names.begin(), end, name);
      if (found != end) return static_cast<size_t>(found - names.begin());
      const auto later = indices.find(name);
      return later == indices.end() ? names.size() : later->second;
    }
  };

  bool add(Json value) {
    if (open_.empty())
      whole_ = std::move(value);
    else if (open_.back().value.kind_ == Kind::kArray)
      open_.back().value.held_->values.push_back(std::move(value));
    else
      open_.back().value.held_->values[open_.back().index] = std::move(value);
    return true;
  }

  bool start(Kind kind) {
    if (open_.size() == kMaxDepth)
      throw JsonError("more than " + std::to_string(kMaxDepth) + " nested arrays and objects");
    open_.emplace_back().value.hold(kind);
    return true;
  }

  bool finish() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  std::vector<Open> open_;  // each one inside the one before
  Json whole_;
};

Json Json::parse(std::string_view text) {
  Library::Builder builder;
  try {
    Library::Value::sax_parse(text, &builder);
  } catch (const JsonError&) {
    if (file_kind(text)) throw JsonError(is_not(text, "JSON"));
    throw;
  }
  return builder.take();
}

std::string Json::dump(JsonFormat format) const {
  using Handler = Library::Value::error_handler_t;
  const auto handler = format.replace_invalid ? Handler::replace : Handler::strict;
  try {
    return Library::to(*this).dump(format.indent, ' ', format.ascii, handler);
  } catch (const nlohmann::json::exception& error) {
    throw JsonError(words_of(error));
  }
}

}  // namespace lockstep
