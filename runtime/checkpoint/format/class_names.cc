#include "runtime/checkpoint/format/class_names.h"

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kKey = "class names";

}  // namespace

void keep_class_names(const std::vector<std::string>& names, CheckpointState& state) {
  constexpr size_t kMaxBytes = size_t{1} << 26;
  if (names.empty()) return;
  std::string list = Json(names).dump({.replace_invalid = true});
  if (list.size() <= kMaxBytes) state.extra[kKey] = std::move(list);
}

std::vector<std::string> kept_class_names(const CheckpointState& state, const std::string& origin) {
  std::vector<std::string> names;
  const auto kept = state.extra.find(kKey);
  if (kept == state.extra.end()) return names;
  try {
    for (const Json& name : Json::parse(kept->second)) names.push_back(name.get<std::string>());
  } catch (const JsonError& error) {
    throw CheckpointError("{}: its {}: {}", origin, kKey, error.what());
  }
  return names;
}

}  // namespace lockstep::checkpoint
