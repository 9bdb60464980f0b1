#pragma once
// Parses the expressions of a chat template, with Jinja's precedence.

#include <vector>

#include "runtime/chat/lexer.h"
#include "runtime/chat/syntax.h"

namespace lockstep::chat {

// The tokens of a template, in order.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is(Token::Kind::kOperator) && current().text == text;
  }
  bool is_name(std::string_view text) const {
    return is(Token::Kind::kName) && current().text == text;
  }
  bool take_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }
  void expect_operator(std::string_view text);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // Parses an expression, or a tuple if there are commas. Without `choices`, as in conditions, the
  // outermost expression is not `x if y`.
  ExpressionPtr parse_tuple(bool choices);
  ExpressionPtr parse(bool choices = true);

 private:
  using Kind = Expression::Kind;

  ExpressionPtr parse_chain(Kind kind, const char* word, ExpressionPtr (ExpressionParser::*next)());
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_unary(bool filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ExpressionPtr parse_call(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_in_brackets();
  void parse_arguments(Expression* call);

  std::unique_ptr<Expression> make(Kind kind) const;
  template <typename... Parts>
  std::unique_ptr<Expression> make(Kind kind, int line, std::string name, Parts... parts) const;

  TokenStream& stream_;
  int depth_ = 0;
};

}  // namespace lockstep::chat
