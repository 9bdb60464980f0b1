#include "runtime/chat/expression_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace lockstep::chat {
namespace {

constexpr int kMaxDepth = 200;  // of nested expressions, and of chains of operators

[[noreturn]] void refuse_depth(int line);

// Counts the nesting depth of the parser.
class DepthGuard {
 public:
  DepthGuard(int* depth, int line) : depth_(depth) {
    if (++*depth_ > kMaxDepth) {
      --*depth_;
      refuse_depth(line);
    }
  }
  ~DepthGuard() { --*depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int* depth_;
};

[[noreturn]] void refuse_depth(int line) {
  throw SyntaxProblem{fmt::format("expressions nested more than {} deep", kMaxDepth), line};
}

// Appends a part, which may be null. A chain of operators is as deep as it is long.
void adopt(Expression* parent, ExpressionPtr part) {
  if (part != nullptr) parent->depth = std::max(parent->depth, part->depth + 1);
  if (parent->depth > kMaxDepth) refuse_depth(parent->line);
  parent->parts.push_back(std::move(part));
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kText: return "text";
    case Token::Kind::kBlockBegin: return "'{%'";
    case Token::Kind::kBlockEnd: return "'%}'";
    case Token::Kind::kOutputBegin: return "'{{'";
    case Token::Kind::kOutputEnd: return "'}}'";
    case Token::Kind::kEnd: return "the end of the template";
    default: return fmt::format("'{}'", token.text);
  }
}

}  // namespace

void TokenStream::expect_operator(std::string_view text) {
  if (!take_operator(text)) unexpected(fmt::format("'{}'", text));
}

std::string TokenStream::expect_name() {
  if (!is(Token::Kind::kName)) unexpected("a name");
  return take().text;
}

void TokenStream::unexpected(std::string_view wanted) const {
  throw SyntaxProblem{fmt::format("{} where {} is expected", shown(current()), wanted),
                      current().line};
}

std::unique_ptr<Expression> ExpressionParser::make(Kind kind) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = stream_.current().line;
  return made;
}

template <typename... Parts>
std::unique_ptr<Expression> ExpressionParser::make(Kind kind,
                                                   int line,
                                                   std::string name,
                                                   Parts... parts) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->name = std::move(name);
  (adopt(made.get(), std::move(parts)), ...);
  return made;
}

ExpressionPtr ExpressionParser::parse_tuple(bool choices) {
  const int line = stream_.current().line;
  ExpressionPtr first = parse(choices);
  if (!stream_.is_operator(",")) return first;
  auto tuple = make(Kind::kTuple, line, {}, std::move(first));
  while (stream_.take_operator(",")) {
    const bool ends = stream_.is(Token::Kind::kBlockEnd) || stream_.is(Token::Kind::kOutputEnd) ||
                      stream_.is_operator(")") || stream_.is_operator("=") || stream_.is_name("in");
    if (ends) break;
    adopt(tuple.get(), parse(choices));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse(bool choices) {
  const DepthGuard depth_guard(&depth_, stream_.current().line);
  ExpressionPtr value = parse_or();
  while (choices && stream_.is_name("if")) {
    const int line = stream_.take().line;
    ExpressionPtr condition = parse_or(), otherwise;
    if (stream_.take_name("else")) otherwise = parse();
    value =
        make(Kind::kChoice, line, {}, std::move(value), std::move(condition), std::move(otherwise));
  }
  return value;
}

// Operands that `next` parses, with the word between them: from left to right.
ExpressionPtr ExpressionParser::parse_chain(Kind kind,
                                            const char* word,
                                            ExpressionPtr (ExpressionParser::*next)()) {
  ExpressionPtr left = (this->*next)();
  while (stream_.is_name(word)) {
    const int line = stream_.take().line;
    left = make(kind, line, {}, std::move(left), (this->*next)());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_or() {
  return parse_chain(Kind::kOr, "or", &ExpressionParser::parse_and);
}

ExpressionPtr ExpressionParser::parse_and() {
  return parse_chain(Kind::kAnd, "and", &ExpressionParser::parse_not);
}

ExpressionPtr ExpressionParser::parse_not() {
  const DepthGuard depth_guard(&depth_, stream_.current().line);
  const int line = stream_.current().line;
  if (stream_.take_name("not")) return make(Kind::kNot, line, {}, parse_not());
  return parse_compare();
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = stream_.current().line;
  ExpressionPtr first = parse_sum();
  std::unique_ptr<Expression> compare;
  while (true) {
    std::string sign;
    for (const char* known : {"==", "!=", "<", "<=", ">", ">="})
      if (stream_.is_operator(known)) sign = known;
    if (stream_.is_name("in")) sign = "in";
    if (stream_.is_name("not") && stream_.next().kind == Token::Kind::kName &&
        stream_.next().text == "in") {
      sign = "not in";
      stream_.take();
    }
    if (sign.empty()) break;
    stream_.take();
    if (compare == nullptr) compare = make(Kind::kCompare, line, {}, std::move(first));
    compare->operators.push_back(sign);
    adopt(compare.get(), parse_sum());
  }
  if (compare == nullptr) return first;
  return compare;
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (stream_.is_operator("+") || stream_.is_operator("-")) {
    const Token sign = stream_.take();
    left = make(Kind::kArithmetic, sign.line, sign.text, std::move(left), parse_concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = stream_.current().line;
  ExpressionPtr first = parse_product();
  if (!stream_.is_operator("~")) return first;
  auto all = make(Kind::kConcatenate, line, {}, std::move(first));
  while (stream_.take_operator("~")) adopt(all.get(), parse_product());
  return all;
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_unary(true);
  while (true) {
    bool found = false;
    for (const char* known : {"*", "/", "//", "%"}) found = found || stream_.is_operator(known);
    if (stream_.is_operator("**")) stream_.unexpected("another operator ('**' is not supported)");
    if (!found) return left;
    const Token sign = stream_.take();
    left = make(Kind::kArithmetic, sign.line, sign.text, std::move(left), parse_unary(true));
  }
}

ExpressionPtr ExpressionParser::parse_unary(bool filters) {
  const DepthGuard depth_guard(&depth_, stream_.current().line);
  const int line = stream_.current().line;
  ExpressionPtr value;
  if (stream_.take_operator("-")) {
    value = make(Kind::kNegate, line, {}, parse_unary(false));
  } else if (stream_.take_operator("+")) {
    value = parse_unary(false);
  } else {
    value = parse_postfix(parse_primary());
  }
  return filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  auto made = make(Kind::kConstant);
  switch (token.kind) {
    case Token::Kind::kName: {
      const std::string name = stream_.take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        made->constant = Value::boolean(name == "true" || name == "True");
      } else if (name != "none" && name != "None") {
        made->kind = Kind::kName;
        made->name = name;
      }
      return made;
    }
    case Token::Kind::kString: {
      std::string text;
      while (stream_.is(Token::Kind::kString)) text += stream_.take().text;
      made->constant = Value::text(std::move(text));
      return made;
    }
    case Token::Kind::kInteger: {
      int64_t number = 0;
      const std::string text = stream_.take().text;
      const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (problem != std::errc())
        throw SyntaxProblem{fmt::format("{} does not fit into 64 bits", text), made->line};
      made->constant = Value::integer(number);
      return made;
    }
    case Token::Kind::kNumber:
      made->constant = Value::number(std::strtod(stream_.take().text.c_str(), nullptr));
      return made;
    case Token::Kind::kOperator: return parse_in_brackets();
    default: stream_.unexpected("an expression");
  }
}

ExpressionPtr ExpressionParser::parse_in_brackets() {
  const int line = stream_.current().line;
  if (stream_.take_operator("(")) {
    if (stream_.take_operator(")")) return make(Kind::kTuple, line, {});
    ExpressionPtr value = parse_tuple(true);
    stream_.expect_operator(")");
    return value;
  }
  const bool is_list = stream_.take_operator("[");
  if (!is_list && !stream_.take_operator("{")) stream_.unexpected("an expression");
  auto all = make(is_list ? Kind::kList : Kind::kMapping, line, {});
  const char* const end = is_list ? "]" : "}";
  while (!stream_.take_operator(end)) {
    if (!all->parts.empty()) {
      stream_.expect_operator(",");
      if (stream_.take_operator(end)) break;
    }
    adopt(all.get(), parse());
    if (is_list) continue;
    stream_.expect_operator(":");
    adopt(all.get(), parse());
  }
  return all;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    const int line = stream_.current().line;
    if (stream_.take_operator(".")) {
      if (!stream_.is(Token::Kind::kName)) stream_.unexpected("the name of an attribute");
      operand = make(Kind::kAttribute, line, stream_.take().text, std::move(operand));
    } else if (stream_.is_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (stream_.is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr operand) {
  auto call = make(Kind::kCall, stream_.current().line, {}, std::move(operand));
  parse_arguments(call.get());
  return call;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr operand) {
  const int line = stream_.take().line;
  std::vector<ExpressionPtr> parts(3);
  size_t part = 0;
  bool slice = false;
  while (!stream_.is_operator("]")) {
    if (stream_.take_operator(":")) {
      slice = true;
      if (++part > 2) stream_.unexpected("']'");
    } else {
      if (parts[part] != nullptr) stream_.unexpected("']'");
      parts[part] = parse();
    }
  }
  if (!slice && parts[0] == nullptr) stream_.unexpected("an expression");
  stream_.take();
  if (!slice) return make(Kind::kSubscript, line, {}, std::move(operand), std::move(parts[0]));
  return make(Kind::kSlice,
              line,
              {},
              std::move(operand),
              std::move(parts[0]),
              std::move(parts[1]),
              std::move(parts[2]));
}

// Arguments in parentheses; named ones come last.
void ExpressionParser::parse_arguments(Expression* call) {
  stream_.expect_operator("(");
  for (bool first = true; !stream_.take_operator(")"); first = false) {
    if (!first) {
      stream_.expect_operator(",");
      if (stream_.take_operator(")")) return;
    }
    const bool named = stream_.is(Token::Kind::kName) &&
                       stream_.next().kind == Token::Kind::kOperator && stream_.next().text == "=";
    if (named) {
      std::string name = stream_.take().text;
      stream_.take();
      ExpressionPtr value = parse();
      call->depth = std::max(call->depth, value->depth + 1);
      if (call->depth > kMaxDepth) refuse_depth(call->line);
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (stream_.is_operator("*") || stream_.is_operator("**"))
        stream_.unexpected("an argument (lists of them are not supported)");
      if (!call->named.empty()) stream_.unexpected("a named argument");
      adopt(call, parse());
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand) {
  while (true) {
    const int line = stream_.current().line;
    if (stream_.take_operator("|")) {
      auto filter = make(Kind::kFilter, line, stream_.expect_name(), std::move(operand));
      if (stream_.is_operator("(")) parse_arguments(filter.get());
      operand = std::move(filter);
    } else if (stream_.is_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (stream_.is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const int line = stream_.take().line;
  const bool negated = stream_.take_name("not");
  auto test = make(Kind::kTest, line, stream_.expect_name(), std::move(operand));
  if (stream_.is_operator("(")) {
    parse_arguments(test.get());
  } else {
    if (stream_.is_name("is")) stream_.unexpected("the end of a test, or one in parentheses");
    // One argument may follow without parentheses.
    const bool word = stream_.is(Token::Kind::kName) && !stream_.is_name("else") &&
                      !stream_.is_name("or") && !stream_.is_name("and") && !stream_.is_name("if") &&
                      !stream_.is_name("is") && !stream_.is_name("in") && !stream_.is_name("not");
    const bool value = stream_.is(Token::Kind::kString) || stream_.is(Token::Kind::kInteger) ||
                       stream_.is(Token::Kind::kNumber) || stream_.is_operator("[") ||
                       stream_.is_operator("{");
    if (word || value) adopt(test.get(), parse_postfix(parse_primary()));
  }
  if (!test->named.empty()) stream_.unexpected("a test without named arguments");
  if (!negated) return test;
  return make(Kind::kNot, line, {}, std::move(test));
}

}  // namespace lockstep::chat
