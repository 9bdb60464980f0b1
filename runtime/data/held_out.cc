#include "runtime/data/held_out.h"

#include <fmt/format.h>

#include <memory>
#include <variant>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/rng.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"

namespace lockstep::data {
namespace {

constexpr RngStream kStream{.seed = 0, .step = 0, .lane = 0, .purpose = kRngShuffle | 2};

bool takes_key(uint64_t key, float share) {
  return uniform_from_word(philox_word(kStream, key)) < share;
}

// The fields that name the evaluation data of a source.
std::vector<std::string> eval_fields(std::string_view section) {
  if (section == "idx") return {"eval_images", "eval_labels"};
  if (section == "npy") return {"eval_inputs", "eval_labels"};
  if (section == "tokens") return {"eval", "eval_documents"};
  return {"eval"};
}

// Throws ConfigError if the source has the field under its older name, with another value.
void check_names(const DataConfig& data) {
  std::visit(
      [&](const auto& source) {
        if constexpr (requires { source.eval_fraction; })
          if (data.eval_fraction > 0 && source.eval_fraction > 0 &&
              data.eval_fraction != source.eval_fraction)
            config::refuse_value(
                fmt::format("data.{}.eval_fraction", config::name_of(data.source)),
                source.eval_fraction,
                "unset, because it is the older name of data.eval_fraction, which is {:g}",
                data.eval_fraction);
      },
      data.source);
}

}  // namespace

bool HeldOut::takes(int64_t index) const { return takes_key(static_cast<uint64_t>(index), share); }

bool HeldOut::takes(std::string_view name) const {
  return takes_key(hash_text(normal_name(name)), share);
}

std::string HeldOut::text() const { return fmt::format("{} of {:g}", field, share); }

void HeldOut::require_parts(int64_t held_out,
                            int64_t all,
                            const std::string& what,
                            const std::string& where) const {
  if (held_out > 0 && held_out < all) return;
  throw DataError("{}: {} holds out {} of the {} {}; set a {} one",
                  where,
                  text(),
                  held_out == 0 ? "none" : "all",
                  all,
                  what,
                  held_out == 0 ? "larger" : "smaller");
}

std::string HeldOut::describe(int64_t held_out, int64_t all, const std::string& what) const {
  return fmt::format("{} holds out {} of {} {}", text(), held_out, all, what);
}

HeldOut held_out_by(const DataConfig& data) {
  return std::visit([&](const auto& source) { return held_out_by(data, source); }, data.source);
}

std::string eval_remedy_for(std::string_view field) {
  if (field.starts_with("data.")) field.remove_prefix(5);
  const size_t dot = field.find('.');
  if (dot == std::string_view::npos || !field.substr(dot + 1).starts_with("eval")) return "";
  const std::string_view section = field.substr(0, dot);
  std::string remedy = "; to evaluate on a part of the training data instead:";
  for (const std::string& name : eval_fields(section))
    remedy += fmt::format(" --set data.{}.{}=", section, name);
  return remedy + " --set data.eval_fraction=0.1";
}

void check_held_out(const DataConfig& data, bool trains) {
  check_names(data);
  const HeldOut held_out = held_out_by(data);
  if (!trains || !held_out || !format_of(data)->has_eval()) return;
  const std::string section = config::name_of(data.source);
  config::refuse_value(held_out.field,
                       held_out.share,
                       "0 when data.{}.{} is given",
                       section,
                       eval_fields(section).front());
}

}  // namespace lockstep::data
