#include "runtime/chat/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "runtime/chat/expression_parser.h"

namespace lockstep::chat {
namespace {

constexpr int kMaxDepth = 100;  // of nested blocks

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  Body run() { return parse_body({}); }

 private:
  using Kind = Statement::Kind;

  // Parses up to a block with one of the names `ends` and stops before its name; without names, up
  // to the end.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    Body body;
    while (!stream_.is(Token::Kind::kEnd)) {
      const int line = stream_.current().line;
      if (stream_.is(Token::Kind::kText)) {
        Statement text = make(Kind::kText, line);
        text.text = stream_.take().text;
        body.push_back(std::move(text));
      } else if (stream_.is(Token::Kind::kOutputBegin)) {
        stream_.take();
        Statement output = make(Kind::kOutput, line);
        output.expression = expressions_.parse_tuple(true);
        if (!stream_.is(Token::Kind::kOutputEnd)) stream_.unexpected("'}}'");
        stream_.take();
        body.push_back(std::move(output));
      } else {
        stream_.take();
        if (!stream_.is(Token::Kind::kName)) stream_.unexpected("the name of a tag");
        const std::string name = stream_.current().text;
        if (std::ranges::find(ends, name) != ends.end()) return body;
        body.push_back(parse_block(line));
      }
    }
    if (ends.size() > 0)
      throw SyntaxProblem{
          fmt::format("the end of the template where {{% {} %}} is expected", *(ends.end() - 1)),
          stream_.current().line};
    return body;
  }

  Statement parse_block(int line) {
    if (++depth_ > kMaxDepth)
      throw SyntaxProblem{fmt::format("blocks nested more than {} deep", kMaxDepth), line};
    const std::string name = stream_.take().text;
    Statement block = make(Kind::kIf, line);
    if (name == "if") {
      parse_if(&block);
    } else if (name == "for") {
      parse_for(&block);
    } else if (name == "set") {
      parse_set(&block);
    } else if (name == "macro") {
      parse_macro(&block);
    } else if (name == "generation") {
      block.kind = Kind::kGeneration;
      end_tag();
      block.bodies.push_back(parse_body({"endgeneration"}));
      stream_.take();
      end_tag();
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) throw SyntaxProblem{fmt::format("{} outside of a loop", name), line};
      block.kind = name == "break" ? Kind::kBreak : Kind::kContinue;
      end_tag();
    } else {
      throw SyntaxProblem{
          fmt::format(
              "the tag {}; supported tags: if, for, set, macro, generation, break, continue", name),
          line};
    }
    --depth_;
    return block;
  }

  void parse_if(Statement* block) {
    block->conditions.push_back(expressions_.parse_tuple(false));
    end_tag();
    while (true) {
      block->bodies.push_back(parse_body({"elif", "else", "endif"}));
      const std::string name = stream_.take().text;
      const bool had_else =
          block->conditions.size() >= block->bodies.size() && block->conditions.back() == nullptr;
      if (had_else && name != "endif")
        throw SyntaxProblem{fmt::format("{} after an else", name), stream_.current().line};
      if (name == "elif") {
        block->conditions.push_back(expressions_.parse_tuple(false));
      } else if (name == "else") {
        block->conditions.push_back(nullptr);
      }
      end_tag();
      if (name == "endif") return;
    }
  }

  std::vector<std::string> parse_targets() {
    const bool brackets = stream_.take_operator("(");
    std::vector<std::string> names = {target()};
    while (stream_.take_operator(",")) {
      if (!stream_.is(Token::Kind::kName) || stream_.is_name("in")) break;
      names.push_back(target());
    }
    if (brackets) stream_.expect_operator(")");
    return names;
  }

  std::string target() {
    const int line = stream_.current().line;
    const std::string name = stream_.expect_name();
    for (const char* reserved : {"true", "false", "none", "True", "False", "None", "loop"})
      if (name == reserved) throw SyntaxProblem{fmt::format("an assignment to {}", name), line};
    return name;
  }

  void parse_for(Statement* block) {
    block->kind = Kind::kFor;
    block->targets = parse_targets();
    if (!stream_.take_name("in")) stream_.unexpected("'in'");
    block->expression = expressions_.parse_tuple(false);
    if (stream_.is_name("recursive"))
      stream_.unexpected("'%}' (recursive loops are not supported)");
    block->conditions.push_back(stream_.take_name("if") ? expressions_.parse() : nullptr);
    end_tag();
    ++loops_;
    block->bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    if (stream_.take().text == "else") {
      end_tag();
      block->bodies.push_back(parse_body({"endfor"}));
      stream_.take();
    }
    end_tag();
  }

  void parse_set(Statement* block) {
    block->kind = Kind::kSet;
    if (stream_.is(Token::Kind::kName) && stream_.next().kind == Token::Kind::kOperator &&
        stream_.next().text == ".") {
      block->targets = {stream_.take().text};
      stream_.take();
      block->attribute = stream_.expect_name();
    } else {
      block->targets = parse_targets();
    }
    if (stream_.take_operator("=")) {
      block->expression = expressions_.parse_tuple(true);
      return end_tag();
    }
    if (stream_.is_operator("|")) stream_.unexpected("'=' (a filtered block is not supported)");
    if (block->targets.size() != 1) stream_.unexpected("'='");
    block->kind = Kind::kSetBlock;
    end_tag();
    block->bodies.push_back(parse_body({"endset"}));
    stream_.take();
    end_tag();
  }

  void parse_macro(Statement* block) {
    block->kind = Kind::kMacro;
    auto macro = std::make_unique<MacroNode>();
    macro->name = target();
    block->targets = {macro->name};
    stream_.expect_operator("(");
    while (!stream_.take_operator(")")) {
      if (!macro->parameters.empty()) {
        stream_.expect_operator(",");
        if (stream_.take_operator(")")) break;
      }
      macro->parameters.push_back(target());
      if (stream_.take_operator("=")) {
        macro->defaults.push_back(expressions_.parse());
      } else if (!macro->defaults.empty()) {
        stream_.unexpected("'=', as the parameter before has a value");
      }
    }
    end_tag();
    const int loops = loops_;
    loops_ = 0;
    macro->body = parse_body({"endmacro"});
    loops_ = loops;
    stream_.take();
    if (stream_.is(Token::Kind::kName)) stream_.take();
    end_tag();
    block->macro = std::move(macro);
  }

  void end_tag() {
    if (!stream_.is(Token::Kind::kBlockEnd)) stream_.unexpected("'%}'");
    stream_.take();
  }

  static Statement make(Kind kind, int line) {
    Statement made;
    made.kind = kind;
    made.line = line;
    return made;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) { return Parser(tokenize_template(source)).run(); }

bool has_generation(const Body& body) {
  return std::ranges::any_of(body, [](const Statement& statement) {
    if (statement.kind == Statement::Kind::kGeneration) return true;
    if (statement.macro != nullptr && has_generation(statement.macro->body)) return true;
    return std::ranges::any_of(statement.bodies,
                               [](const Body& inner) { return has_generation(inner); });
  });
}

}  // namespace lockstep::chat
