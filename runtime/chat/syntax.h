#pragma once
// The syntax tree of a chat template: statements and expressions. Plain data.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/value.h"

namespace lockstep::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kMapping,    // parts: key, value, key, value, ...
    kAttribute,  // parts[0].name
    kSubscript,  // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; null: absent
    kCall,       // parts[0](the other parts, named)
    kFilter,     // parts[0] | name(the other parts, named)
    kTest,       // parts[0] is name(the other parts)
    kNot,
    kNegate,
    kAnd,
    kOr,
    kChoice,      // parts[0] if parts[1] else parts[2]; null: absent
    kCompare,     // parts[0] operators[0] parts[1] operators[1] ...
    kArithmetic,  // parts[0] name parts[1]
    kConcatenate,
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  int depth = 1;  // of nested expressions
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Body = std::vector<Statement>;

struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,
    kOutput,
    kIf,        // bodies[i] if conditions[i]; null: always
    kFor,       // targets in expression, if conditions[0]; bodies: loop, else
    kSet,       // targets = expression
    kSetBlock,  // targets = output of bodies[0]
    kMacro,
    kGeneration,  // bodies[0] is the assistant's part
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  ExpressionPtr expression;
  std::vector<ExpressionPtr> conditions;
  std::vector<Body> bodies;
  std::vector<std::string> targets;
  std::string attribute;  // kSet: attribute of the namespace targets[0]; empty: none
  std::unique_ptr<const MacroNode> macro;
};

}  // namespace lockstep::chat
