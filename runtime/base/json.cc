#include "runtime/base/json.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <utility>

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

// Words and numbers of errors are those of nlohmann's library, as of the errors that it finds.
[[noreturn]] void fail(const std::string& what) { throw JsonError("[json.exception." + what); }

[[noreturn]] void fail_type(const char* wanted, Json::Kind found) {
  fail(std::string("type_error.302] type must be ") + wanted + ", but is " + name_of(found));
}

[[noreturn]] void fail_use(const char* number, const char* of, Json::Kind found) {
  fail(std::string("type_error.") + number + "] cannot use " + of + " with " + name_of(found));
}

}  // namespace

struct Json::Held {
  std::string text;
  std::vector<std::string> names;  // of an object, as many as values
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
  if (!is_structured()) fail_use("302", "begin()", kind_);
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
  if (kind_ != Kind::kObject) fail_use("304", "at()", kind_);
  const Json* found = find(name);
  if (found == nullptr) fail("out_of_range.403] key '" + std::string(name) + "' not found");
  return *found;
}

const Json& Json::at(size_t index) const {
  if (kind_ != Kind::kArray) fail_use("304", "at()", kind_);
  if (index >= held_->values.size())
    fail("out_of_range.401] array index " + std::to_string(index) + " is out of range");
  return held_->values[index];
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) hold(Kind::kObject);
  if (kind_ != Kind::kObject) fail_use("305", "operator[] with a string argument", kind_);
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  held_->names.emplace_back(name);
  return held_->values.emplace_back();
}

void Json::push_back(Json element) {
  if (is_null()) hold(Kind::kArray);
  if (kind_ != Kind::kArray) fail_use("308", "push_back()", kind_);
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
    const auto whole = static_cast<int64_t>(value);
    if (static_cast<double>(whole) == value) return whole;
  }
  fail("out_of_range.406] " + dump() + " is no 64-bit integer");
}

template <>
uint64_t Json::get() const {
  if (kind_ == Kind::kUnsigned) return bits_;
  const auto value = get<int64_t>();
  if (value < 0) fail("out_of_range.406] " + dump() + " is negative");
  return static_cast<uint64_t>(value);
}

template <>
int Json::get() const {
  const auto value = get<int64_t>();
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    fail("out_of_range.406] " + dump() + " is no 32-bit integer");
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

// Puts together what nlohmann's parser finds.
class Json::Parser : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& text) override { return add(std::move(text)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open(object()); }
  bool start_array(size_t) override { return open(array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    keep_the_last(*open_.back()->held_);
    return end_array();
  }
  bool key(std::string& name) override {
    open_.back()->held_->names.push_back(std::move(name));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw JsonError(error.what());
  }

 private:
  // An object is here given its member's name first. A value that is open is the last of its array
  // or object, which does not grow until it is closed.
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back()->held_->values.push_back(std::move(value));
    }
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kMaxDepth)
      throw JsonError("more than " + std::to_string(kMaxDepth) +
                      " arrays and objects within each other");
    add(std::move(value));
    open_.push_back(open_.empty() ? &root_ : &open_.back()->held_->values.back());
    return true;
  }

  // Of members with one name the last value, in the place of the first.
  static void keep_the_last(Held& object) {
    const auto& names = object.names;
    std::vector<size_t> order(names.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(
        order.begin(), order.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
    std::vector<size_t> kept;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || names[order[i]] != names[order[i - 1]]) {
        kept.push_back(order[i]);
      } else {
        object.values[kept.back()] = std::move(object.values[order[i]]);
      }
    }
    if (kept.size() == names.size()) return;
    std::sort(kept.begin(), kept.end());
    Held fewer;
    for (const size_t i : kept) {
      fewer.names.push_back(std::move(object.names[i]));
      fewer.values.push_back(std::move(object.values[i]));
    }
    object = std::move(fewer);
  }

  Json root_;
  std::vector<Json*> open_;  // from the outermost in
};

Json Json::parse(std::string_view text) {
  Parser parser;
  nlohmann::json::sax_parse(text, &parser);
  return parser.take();
}

class Json::Writer {
 public:
  explicit Writer(const JsonFormat& format) : format_(format) {}

  void write(const Json& json) {
    switch (json.kind_) {
      case Kind::kNull: text_ += "null"; return;
      case Kind::kBoolean: text_ += json.bits_ != 0 ? "true" : "false"; return;
      case Kind::kInteger: text_ += std::to_string(static_cast<int64_t>(json.bits_)); return;
      case Kind::kUnsigned: text_ += std::to_string(json.bits_); return;
      case Kind::kDouble: text_ += nlohmann::json(std::bit_cast<double>(json.bits_)).dump(); return;
      case Kind::kString: write_string(json.held_->text); return;
      case Kind::kArray: write_structured(*json.held_, '[', ']'); return;
      case Kind::kObject: write_structured(*json.held_, '{', '}'); return;
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void write_string(const std::string& text) {
    const auto handler = format_.replace_invalid ? nlohmann::json::error_handler_t::replace
                                                 : nlohmann::json::error_handler_t::strict;
    text_ += nlohmann::json(text).dump(-1, ' ', format_.ascii, handler);
  }

  void write_structured(const Held& held, char first, char last) {
    text_ += first;
    ++level_;
    for (size_t i = 0; i < held.values.size(); ++i) {
      if (i > 0) text_ += ',';
      begin_line();
      if (!held.names.empty()) {
        write_string(held.names[i]);
        text_ += format_.indent < 0 ? ":" : ": ";
      }
      write(held.values[i]);
    }
    --level_;
    if (!held.values.empty()) begin_line();
    text_ += last;
  }

  void begin_line() {
    if (format_.indent < 0) return;
    text_ += '\n';
    text_.append(static_cast<size_t>(level_) * static_cast<size_t>(format_.indent), ' ');
  }

  const JsonFormat& format_;
  int level_ = 0;
  std::string text_;
};

std::string Json::dump(JsonFormat format) const {
  Writer writer(format);
  try {
    writer.write(*this);
  } catch (const nlohmann::json::exception& error) {
    throw JsonError(error.what());
  }
  return writer.take();
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

}  // namespace lockstep
