#include "runtime/chat/evaluation.h"

#include <algorithm>

#include "runtime/base/int128.h"

namespace lockstep::chat {
namespace {

// Max nesting of expressions, bodies and macros, so that a thread's stack suffices.
constexpr int kMaxDepth = 600;

class DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(depth) {
    if (*depth_ >= kMaxDepth) throw TemplateProblem("nesting of more than {} levels", kMaxDepth);
    ++*depth_;
  }
  ~DepthGuard() { --*depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int* depth_;
};

}  // namespace

const Value* Arguments::find(size_t index, std::string_view name) const {
  if (index < values.size()) return &values[index];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

const Value& Arguments::at(size_t index, std::string_view name, std::string_view what) const {
  const Value* found = find(index, name);
  if (found == nullptr) throw TemplateProblem("{} needs the argument {}", what, name);
  return *found;
}

void Arguments::check(std::string_view what, std::initializer_list<std::string_view> names) const {
  if (values.size() > names.size())
    throw TemplateProblem(
        "{} with {} arguments; at most {} are allowed", what, values.size(), names.size());
  for (const auto& [key, value] : named) {
    const auto index = std::ranges::find(names, key);
    if (index == names.end())
      throw TemplateProblem("the argument {} of {} is not supported", key, what);
    if (static_cast<size_t>(index - names.begin()) < values.size())
      throw TemplateProblem("the argument {} of {} is given twice", key, what);
  }
}

void Evaluation::run(const Body& body) { run_body(body); }

void Evaluation::write(const std::string& text) {
  out_ += text;
  if (out_.size() > Budget::kMaxOutput)
    throw TemplateProblem("a text of more than {} MiB", Budget::kMaxOutput >> 20);
}

std::string Evaluation::captured(const Body& body) {
  std::string outer = std::move(out_);
  out_.clear();
  ++captures_;
  if (run_in_scope(body) != Flow::kOn)
    throw TemplateProblem("leaving a loop within a set block is not supported");
  --captures_;
  std::string text = std::move(out_);
  out_ = std::move(outer);
  budget_.take(text.size());
  return text;
}

Evaluation::Flow Evaluation::run_body(const Body& body) {
  const DepthGuard depth_guard(&depth_);
  for (const Statement& statement : body) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluation::Flow Evaluation::run_in_scope(const Body& body) {
  scopes_.emplace_back();
  const Flow flow = run_body(body);
  scopes_.pop_back();
  return flow;
}

Evaluation::Flow Evaluation::run_statement(const Statement& statement) {
  budget_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::kText: write(statement.text); return Flow::kOn;
    case Statement::Kind::kOutput: write(evaluate(*statement.expression).shown()); return Flow::kOn;
    case Statement::Kind::kIf:
      for (size_t i = 0; i < statement.bodies.size(); ++i) {
        const bool otherwise =
            i >= statement.conditions.size() || statement.conditions[i] == nullptr;
        if (otherwise || evaluate(*statement.conditions[i]).truth())
          return run_body(statement.bodies[i]);
      }
      return Flow::kOn;
    case Statement::Kind::kFor: return run_for(statement);
    case Statement::Kind::kSet: run_set(statement); return Flow::kOn;
    case Statement::Kind::kSetBlock:
      if (!statement.attribute.empty())
        throw TemplateProblem("setting an attribute to a block is not supported");
      assign(statement.targets, budget_.text(captured(statement.bodies[0])));
      return Flow::kOn;
    case Statement::Kind::kMacro:
      if (scopes_.size() > 1)
        throw TemplateProblem("the macro {} within a loop, a macro or a block is not supported",
                              statement.macro->name);
      assign(statement.targets, Value::macro(statement.macro.get()));
      return Flow::kOn;
    case Statement::Kind::kGeneration: {
      if (captures_ > 0)
        throw TemplateProblem("a generation block within a macro or a set block is not supported");
      const size_t begin = out_.size();
      if (run_in_scope(statement.bodies[0]) != Flow::kOn)
        throw TemplateProblem("leaving a loop within a generation block is not supported");
      generated_.push_back({begin, out_.size()});
      return Flow::kOn;
    }
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

Evaluation::Flow Evaluation::run_for(const Statement& statement) {
  auto items = elements_of(budget_, evaluate(*statement.expression));
  if (statement.conditions[0] != nullptr) {
    Value::List kept;
    for (const Value& item : *items) {
      scopes_.emplace_back();
      assign(statement.targets, item);
      if (evaluate(*statement.conditions[0]).truth()) kept.push_back(item);
      scopes_.pop_back();
    }
    items = std::make_shared<const Value::List>(std::move(kept));
  }
  bool ended = false;  // whether an iteration reached the end of the body
  for (size_t i = 0; i < items->size(); ++i) {
    budget_.step();
    scopes_.emplace_back();
    assign(statement.targets, (*items)[i]);
    variable("loop") = Value::loop(items, i);
    const Flow flow = run_body(statement.bodies[0]);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
    ended |= flow == Flow::kOn;
  }
  if (ended || statement.bodies.size() < 2) return Flow::kOn;
  return run_in_scope(statement.bodies[1]);
}

void Evaluation::run_set(const Statement& statement) {
  const Value value = evaluate(*statement.expression);
  line_ = statement.line;
  if (statement.attribute.empty()) return assign(statement.targets, value);
  const Value* space = find_variable(statement.targets[0]);
  if (space == nullptr || !space->is(Value::Kind::kNamespace))
    throw TemplateProblem("{}.{} cannot be set, because {} is not a namespace",
                          statement.targets[0],
                          statement.attribute,
                          statement.targets[0]);
  if (statement.attribute.starts_with('_'))
    throw TemplateProblem("{} cannot be set, because it begins with '_'", statement.attribute);
  if (value.is(Value::Kind::kNamespace) || value.is(Value::Kind::kLoop) ||
      value.is(Value::Kind::kMacro))
    throw TemplateProblem("a value of type {} cannot be stored in a namespace", value.kind_name());
  auto& members = space->as_namespace().members;
  budget_.count_search(members);
  member_named(members, statement.attribute) = value;
}

void Evaluation::assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    variable(targets[0]) = value;
    return;
  }
  const auto parts = elements_of(budget_, value);
  if (parts->size() != targets.size())
    throw TemplateProblem("{} values are assigned to {} names", parts->size(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) variable(targets[i]) = (*parts)[i];
}

const Value* Evaluation::find_variable(std::string_view name) {
  const auto in = [&](const Value::Members& scope) {
    budget_.count_search(scope);
    return find_member(scope, name);
  };
  for (size_t i = scopes_.size(); i > base_; --i)
    if (const Value* found = in(scopes_[i - 1])) return found;
  return base_ > 0 ? in(scopes_[0]) : nullptr;
}

Value& Evaluation::variable(const std::string& name) {
  Value::Members& scope = scopes_.back();
  budget_.count_search(scope);
  return member_named(scope, name);
}

Value Evaluation::evaluate(const Expression& expression) {
  const DepthGuard depth_guard(&depth_);
  budget_.step();
  line_ = expression.line;
  return evaluate_kind(expression);
}

Value Evaluation::evaluate_kind(const Expression& expression) {
  using Kind = Expression::Kind;
  const auto part = [&](size_t i) { return evaluate(*expression.parts[i]); };
  const auto all_parts = [&] {
    Value::List values;
    for (const ExpressionPtr& each : expression.parts) values.push_back(evaluate(*each));
    return values;
  };
  switch (expression.kind) {
    case Kind::kConstant: return expression.constant;
    case Kind::kName: return name(expression);
    case Kind::kList: return budget_.list(all_parts());
    case Kind::kTuple: return budget_.list(all_parts(), true);
    case Kind::kMapping: {
      Value::Members members;
      for (size_t i = 0; i < expression.parts.size(); i += 2) {
        const Value key = part(i);
        if (!key.is_text())
          throw TemplateProblem("a dict with a key of type {} is not supported", key.kind_name());
        Value value = part(i + 1);
        budget_.take(key.as_text().size() + sizeof(Value));
        budget_.count_search(members);
        member_named(members, key.as_text()) = std::move(value);
      }
      return Value::mapping(std::move(members));
    }
    case Kind::kAttribute: return attribute_of(budget_, part(0), expression.name);
    case Kind::kSubscript: {
      const Value object = part(0);
      return element_of(budget_, object, part(1));
    }
    case Kind::kSlice: {
      const Value object = part(0);
      const auto bound = [&](size_t i) {
        return expression.parts[i] == nullptr ? Value() : part(i);
      };
      const Value begin = bound(1), end = bound(2), step = bound(3);
      return slice_of(budget_, object, begin, end, step);
    }
    case Kind::kCall: return call(expression);
    case Kind::kFilter: {
      const Value object = part(0);
      if (object.is_text()) budget_.read(object.weight());
      return apply_filter(budget_, expression.name, object, arguments_of(expression, 1));
    }
    case Kind::kTest: {
      const std::vector<Value> values = all_parts();
      line_ = expression.line;
      if (values.size() > 1) budget_.read(std::max(values[0].weight(), values[1].weight()));
      return Value::boolean(
          apply_test(budget_, expression.name, values[0], std::span(values).subspan(1)));
    }
    case Kind::kNot: return Value::boolean(!part(0).truth());
    case Kind::kNegate: return arithmetic(budget_, "-", Value::integer(0), part(0));
    case Kind::kAnd: {
      Value left = part(0);
      return left.truth() ? part(1) : left;
    }
    case Kind::kOr: {
      Value left = part(0);
      return left.truth() ? left : part(1);
    }
    case Kind::kChoice:
      if (part(1).truth()) return part(0);
      return expression.parts[2] == nullptr ? Value::undefined("a choice without else") : part(2);
    case Kind::kCompare: return compare(expression);
    case Kind::kArithmetic: {
      const Value left = part(0), right = part(1);
      line_ = expression.line;
      return arithmetic(budget_, expression.name, left, right);
    }
    case Kind::kConcatenate: {
      std::string text;
      for (const ExpressionPtr& each : expression.parts) {
        text += evaluate(*each).shown();
        if (text.size() > Budget::kMaxOutput) budget_.take(Budget::kMaxBytes);
      }
      return budget_.text(std::move(text));
    }
  }
  return {};
}

Value Evaluation::name(const Expression& expression) {
  if (const Value* found = find_variable(expression.name)) return *found;
  // Functions may be tested for being defined.
  for (const char* function : {"raise_exception", "namespace", "dict", "range"})
    if (expression.name == function) return Value::macro(nullptr);
  for (const char* of_jinja : {"self", "joiner", "cycler", "lipsum"})
    if (expression.name == of_jinja) throw TemplateProblem("{} is not supported", of_jinja);
  return Value::undefined(expression.name);
}

Value Evaluation::compare(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    const std::string& sign = expression.operators[i];
    const bool within = sign.ends_with("in");
    budget_.read(within ? right.weight() : std::min(left.weight(), right.weight()));
    bool holds = false;
    if (sign == "==" || sign == "!=") {
      holds = (left == right) == (sign == "==");
    } else if (within) {
      holds = contains(budget_, right, left) == (sign == "in");
    } else {
      const int by = order(left, right);
      holds = sign == "<"    ? by == -1
              : sign == "<=" ? by == -1 || by == 0
              : sign == ">"  ? by == 1
                             : by == 1 || by == 0;
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Arguments Evaluation::arguments_of(const Expression& expression, size_t first) {
  Arguments arguments;
  for (size_t i = first; i < expression.parts.size(); ++i)
    arguments.values.push_back(evaluate(*expression.parts[i]));
  for (const auto& [key, value] : expression.named)
    arguments.named.emplace_back(key, evaluate(*value));
  line_ = expression.line;
  return arguments;
}

Value Evaluation::call(const Expression& expression) {
  const Expression& callee = *expression.parts[0];
  if (callee.kind == Expression::Kind::kAttribute) {
    const Value object = evaluate(*callee.parts[0]);
    if (object.is_text()) budget_.read(object.weight());
    return call_method(budget_, object, callee.name, arguments_of(expression, 1));
  }
  if (callee.kind != Expression::Kind::kName)
    throw TemplateProblem("a call of an expression that is not a name is not supported");
  const Value* found = find_variable(callee.name);
  if (found == nullptr) return call_function(callee.name, arguments_of(expression, 1));
  if (!found->is(Value::Kind::kMacro))
    throw TemplateProblem("{} is called, but it is a {}", callee.name, found->kind_name());
  const MacroNode* const macro = found->as_macro();
  if (macro == nullptr)
    throw TemplateProblem(
        "{} is called, which is a function under another name; that is not supported", callee.name);
  return call_macro(*macro, arguments_of(expression, 1));
}

Value Evaluation::call_macro(const MacroNode& macro, Arguments arguments) {
  const size_t parameters = macro.parameters.size();
  if (arguments.values.size() > parameters)
    throw TemplateProblem("the macro {} takes {} arguments", macro.name, parameters);
  for (const auto& [key, value] : arguments.named)
    if (std::ranges::find(macro.parameters, key) == macro.parameters.end())
      throw TemplateProblem("the macro {} has no parameter {}", macro.name, key);
  const size_t base = base_, first_default = parameters - macro.defaults.size();
  base_ = scopes_.size();
  scopes_.emplace_back();
  for (size_t i = 0; i < parameters; ++i) {
    Value value = Value::undefined(macro.parameters[i]);
    if (const Value* given = arguments.find(i, macro.parameters[i])) {
      value = *given;
    } else if (i >= first_default) {
      value = evaluate(*macro.defaults[i - first_default]);
    }
    variable(macro.parameters[i]) = std::move(value);
  }
  std::string text = captured(macro.body);
  scopes_.pop_back();
  base_ = base;
  return budget_.text(std::move(text));
}

Value Evaluation::call_function(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    arguments.check(name, {"message"});
    TemplateProblem problem("{}", arguments.at(0, "message", name).shown());
    problem.raised = true;
    throw problem;
  }
  if (name == "namespace" || name == "dict") {
    Value::Members members;
    if (arguments.values.size() > 1)
      throw TemplateProblem(
          "{} of {} values; at most one is allowed", name, arguments.values.size());
    for (const Value& value : arguments.values) {
      if (!value.is_mapping())
        throw TemplateProblem("{}: a value of type {} is not allowed", name, value.kind_name());
      members.insert(members.end(), value.as_mapping().begin(), value.as_mapping().end());
    }
    for (const auto& [key, value] : arguments.named) {
      if (key.starts_with('_'))
        throw TemplateProblem("{} cannot be a name, because it begins with '_'", key);
      budget_.count_search(members);
      std::erase_if(members, [&key = key](const auto& member) { return member.first == key; });
      members.emplace_back(key, value);
    }
    budget_.take(members.size() * sizeof(Value));
    return name == "dict" ? Value::mapping(std::move(members))
                          : Value::new_namespace(std::move(members));
  }
  if (name == "range") {
    arguments.check(name, {"start", "stop", "step"});
    std::vector<int64_t> bounds;
    for (const Value& value : arguments.values) {
      if (!value.is_integer())
        throw TemplateProblem("range: a value of type {} is not allowed", value.kind_name());
      bounds.push_back(value.as_integer());
    }
    if (bounds.empty()) throw TemplateProblem("range needs an end");
    const int64_t begin = bounds.size() > 1 ? bounds[0] : 0,
                  end = bounds.size() > 1 ? bounds[1] : bounds[0];
    const int64_t step = bounds.size() > 2 ? bounds[2] : 1;
    if (step == 0) throw TemplateProblem("the step of range is 0");
    Value::List values;
    constexpr size_t kMaxNumbers = 100'000;  // as in Jinja's sandbox
    for (Int128 i = begin; step > 0 ? i < end : i > end; i += step) {
      if (values.size() >= kMaxNumbers)
        throw TemplateProblem("a range of more than {} numbers", kMaxNumbers);
      values.push_back(Value::integer(static_cast<int64_t>(i)));
    }
    return budget_.iterable(Value::Iterable::Kind::kRange, std::move(values));
  }
  throw TemplateProblem("the function {} is not supported", name);
}

}  // namespace lockstep::chat
