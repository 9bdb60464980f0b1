#include "runtime/checkpoint/format/preprocessing.h"

#include <utility>

#include "runtime/base/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kKey = "preprocessing";

}  // namespace

void keep_preprocessing(const Json& fields, CheckpointState& state) {
  constexpr size_t kMaxBytes = size_t{1} << 26;
  std::string text = fields.dump({.replace_invalid = true});
  if (text.size() <= kMaxBytes) state.extra[kKey] = std::move(text);
}

std::optional<Json> kept_preprocessing(const CheckpointState& state, const std::string& origin) {
  const auto kept = state.extra.find(kKey);
  if (kept == state.extra.end()) return std::nullopt;
  try {
    return Json::parse(kept->second);
  } catch (const JsonError& error) {
    throw CheckpointError("{}: its {}: {}", origin, kKey, error.what());
  }
}

}  // namespace lockstep::checkpoint
