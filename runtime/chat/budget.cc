// The limits of one rendering.
#include <algorithm>

#include "runtime/chat/evaluation.h"

namespace lockstep::chat {

void Budget::step(int64_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps)
    throw TemplateProblem("more than {} steps; the template takes too long", kMaxSteps);
}

void Budget::read(size_t bytes, size_t times) {
  constexpr double kBytesOfStep = 64;
  const double steps = static_cast<double>(bytes) / kBytesOfStep * static_cast<double>(times);
  step(static_cast<int64_t>(std::min(steps, static_cast<double>(kMaxSteps) + 1)));
}

void Budget::count_search(const Value::Members& members) {
  constexpr size_t kBytesOfMember = 8;  // of its name, roughly
  read(members.size(), kBytesOfMember);
}

void Budget::take(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > kMaxBytes) throw TemplateProblem("values of more than {} MiB", kMaxBytes >> 20);
}

Value Budget::text(std::string text) {
  take(text.size());
  return Value::text(std::move(text));
}

Value Budget::list(Value::List values, bool tuple) {
  take(values.size() * sizeof(Value));
  step(static_cast<int64_t>(values.size()));
  return Value::list(std::move(values), tuple);
}

Value Budget::iterable(Value::Iterable::Kind kind, Value::List values) {
  take(values.size() * sizeof(Value));
  step(static_cast<int64_t>(values.size()));
  return Value::iterable(kind, std::move(values));
}

}  // namespace lockstep::chat
