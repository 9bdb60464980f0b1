#include "launcher/forecast/advise.h"

#include <fmt/core.h>

#include <algorithm>

#include "launcher/forecast/forecast_text.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

// A value of a field that the search tries.
struct Choice {
  std::string set;  // empty: as the config has it
  bool same_bits;
  std::string gives_up;
};
using Choices = std::vector<Choice>;

constexpr const char* kUnchanged = "";

// Numbers of lanes: the ranks times a power of two that divides the batch.
Choices lanes_of(const run::PreparedRun& prepared, int ranks) {
  constexpr int64_t kMost = 64;  // of a rank
  Choices choices = {{kUnchanged, true, ""}};
  const int64_t batch = prepared.config.train.global_batch;
  for (int64_t lanes = ranks; lanes <= std::min(batch, ranks * kMost); lanes *= 2) {
    if (batch % lanes != 0 || lanes == prepared.config.train.lanes) continue;
    choices.push_back({fmt::format("train.lanes={}", lanes), false, ""});
  }
  return choices;
}

Choices stages_of(int ranks) {
  if (ranks == 1) return {{kUnchanged, true, ""}};
  return {{kUnchanged, true, ""},
          {"comm.zero_stage=STAGE_0", true, ""},
          {"comm.zero_stage=STAGE_1", true, ""},
          {"comm.zero_stage=STAGE_2", true, "gradients are sent for every lane"},
          {"comm.zero_stage=STAGE_3", true, "parameters are gathered for every lane"}};
}

Choices recomputation_of(const run::PreparedRun& prepared) {
  Choices choices = {{kUnchanged, true, ""}};
  if (prepared.model->traits().has_blocks &&
      prepared.config.execution.recompute == ExecutionConfig::Recompute::kNothing)
    choices.push_back({"execution.recompute=BLOCKS", true, "a third more work"});
  return choices;
}

Choices loss_rows_of(const run::PreparedRun& prepared) {
  Choices choices = {{kUnchanged, true, ""}};
  if (prepared.model->traits().context > 0 && prepared.config.execution.loss_rows == 0)
    choices.push_back(
        {"execution.loss_rows=1024", !prepared.ops->separate_memory, "the logits in parts"});
  return choices;
}

Choices precisions_of(const run::PreparedRun& prepared, const Hardware& hardware) {
  Choices choices = {{kUnchanged, true, ""}};
  const bool fp32 = prepared.config.execution.precision == Precision::kFp32;
  if (!fp32 || hardware.bf16_tflops <= hardware.fp32_tflops) return choices;
  choices.push_back({"execution.precision=BF16", false, "8 bits of precision"});
  if (hardware.kind == Hardware::Kind::kGpu && hardware.tf32_tflops > 0 &&
      !prepared.config.execution.tf32)
    choices.push_back({"execution.tf32=true", false, "products with 10 bits of precision"});
  return choices;
}

// All combinations of one choice each.
std::vector<Advice> combinations(const std::vector<Choices>& dimensions) {
  std::vector<Advice> all(1);
  for (const Choices& choices : dimensions) {
    std::vector<Advice> longer;
    for (const Advice& advice : all)
      for (const Choice& choice : choices) {
        Advice next = advice;
        if (!choice.set.empty()) next.set.push_back(choice.set);
        next.same_bits = next.same_bits && choice.same_bits;
        if (!choice.gives_up.empty()) append_item(next.gives_up, choice.gives_up);
        longer.push_back(std::move(next));
      }
    all = std::move(longer);
  }
  return all;
}

// Whether a setting costs nothing that the other one does not.
bool is_simpler(const Advice& a, const Advice& b) { return a.set.size() < b.set.size(); }

// Drops settings that are no better than one with fewer changes.
std::vector<Advice> without_idle_changes(std::vector<Advice> all) {
  constexpr double kSame = 0.002;
  std::vector<Advice> kept;
  std::ranges::stable_sort(all, is_simpler);
  for (Advice& advice : all) {
    const bool idle = std::ranges::any_of(kept, [&](const Advice& simpler) {
      return simpler.fits >= advice.fits && simpler.step_s <= advice.step_s * (1 + kSame) &&
             simpler.needed_bytes <= advice.needed_bytes * (1 + kSame);
    });
    if (!idle) kept.push_back(std::move(advice));
  }
  return kept;
}

std::string set_line(const Advice& advice) {
  if (advice.set.empty()) return "the config as it is";
  std::string line;
  for (const std::string& set : advice.set) append_item(line, "--set " + set, " ");
  return line;
}

void print_one(const Advice& advice) {
  std::string text = fmt::format("  {:>10}  {:>9.3g} GiB  {}",
                                 forecast::seconds_text(forecast::Range::exactly(advice.step_s)),
                                 advice.needed_bytes / 0x1p30,
                                 set_line(advice));
  std::string notes = advice.same_bits ? "the same bits" : "other bits";
  if (!advice.gives_up.empty()) notes += "; " + advice.gives_up;
  fmt::print("{}\n{:30}({})\n", text, "", notes);
}

Json to_json(const Advice& advice) {
  return Json::object({{"set", advice.set},
                       {"predicted_step_seconds", advice.step_s},
                       {"memory_bytes", advice.needed_bytes},
                       {"fits", advice.fits},
                       {"same_bits", advice.same_bits},
                       {"gives_up", advice.gives_up}});
}

}  // namespace

std::vector<Advice> find_advice(const PlanRequest& request, const PlanPlace& place) {
  const PlannedRun as_it_is = plan_run(request, place);
  const run::PreparedRun& prepared = as_it_is.prepared;
  std::vector<Advice> all = combinations({lanes_of(prepared, request.ranks),
                                          stages_of(request.ranks),
                                          recomputation_of(prepared),
                                          loss_rows_of(prepared),
                                          precisions_of(prepared, place.hardware.hardware)});
  std::vector<Advice> possible;
  for (Advice& advice : all) {
    try {
      const PlannedRun planned = plan_run(request, place, advice.set);
      advice.step_s = planned.forecast->step.step.middle();
      advice.needed_bytes = planned.needed_bytes;
      advice.fits = planned.fits();
      possible.push_back(std::move(advice));
    } catch (const ConfigError&) {
      // The config has something that this setting does not go with.
    }
  }
  possible = without_idle_changes(std::move(possible));
  std::ranges::stable_sort(possible, [](const Advice& a, const Advice& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.step_s < b.step_s : a.needed_bytes < b.needed_bytes;
  });
  return possible;
}

void print_advice(const PlanRequest& request,
                  const PlanPlace& place,
                  const std::vector<Advice>& all,
                  Json& json) {
  constexpr size_t kPrinted = 3;
  std::vector<Advice> fitting;
  std::ranges::copy_if(all, std::back_inserter(fitting), &Advice::fits);
  fmt::print("predicted, not measured: the best settings for {} x {}\n",
             request.ranks,
             place.hardware.hardware.name);
  if (fitting.empty() && !all.empty()) {
    fmt::print("nothing fits into {:.3g} GiB; the least memory needs:\n",
               static_cast<double>(place.hardware.device_bytes) / 0x1p30);
    print_one(all.front());
  }
  const auto print = [&](const char* title, const char* key) {
    fmt::print("{}\n", title);
    for (size_t i = 0; i < std::min(kPrinted, fitting.size()); ++i) {
      print_one(fitting[i]);
      json["advice"][key].push_back(to_json(fitting[i]));
    }
  };
  if (fitting.empty()) return;
  print("by time, and so by cost and energy:", "by_time");
  std::ranges::stable_sort(fitting, {}, &Advice::needed_bytes);
  print("by memory:", "by_memory");
}

}  // namespace lockstep::launcher
